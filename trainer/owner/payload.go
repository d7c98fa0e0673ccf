package owner

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The payloads of frames that are neither numbers of a variable nor JSON. All
// of them are little-endian.
//
//	step    rate f64, by part: leaves present u32
//	done    leaves present u64, norm f64, updates u64, whether it was saved before u8
//	norm    by slot that has a gradient, in the order of the declaration's
//	        pieces: number of sums u64, that many f64
//	scale   norm f64, factor f64
const doneSize = 25

func stepSize(c *contributor) int { return 8 + 4*len(c.parts) }

func encodeBeginning(into []byte, b beginning) []byte {
	into = appendFloat(into[:0], b.rate)
	for _, n := range b.present {
		into = binary.LittleEndian.AppendUint32(into, uint32(n))
	}
	return into
}

// decodeBeginning reads stepSize bytes. present is room for the leaves.
func decodeBeginning(from []byte, present []int) beginning {
	b := beginning{rate: float(from), present: present[:0]}
	for from = from[8:]; len(from) > 0; from = from[4:] {
		b.present = append(b.present, int(binary.LittleEndian.Uint32(from)))
	}
	return b
}

func encodeOutcome(into []byte, o outcome) []byte {
	into = binary.LittleEndian.AppendUint64(into[:0], uint64(o.leaves))
	into = appendFloat(into, o.norm)
	into = binary.LittleEndian.AppendUint64(into, o.updates)
	if o.saved {
		return append(into, 1)
	}
	return append(into, 0)
}

// decodeOutcome reads doneSize bytes.
func decodeOutcome(from []byte) (outcome, error) {
	if from[24] > 1 {
		return outcome{}, fmt.Errorf("the end of a step says %d where 0 or 1 is due", from[24])
	}
	return outcome{
		leaves:  int(binary.LittleEndian.Uint64(from)),
		norm:    float(from[8:]),
		updates: binary.LittleEndian.Uint64(from[16:]),
		saved:   from[24] == 1,
	}, nil
}

// report encodes the squares of a group.
func (e *engine) report(into []byte, group int) []byte {
	into = into[:0]
	for _, s := range e.slots {
		if !e.d.hasGradient(s.piece()) {
			continue
		}
		squares := s.squares(group)
		into = binary.LittleEndian.AppendUint64(into, uint64(len(squares)))
		for _, x := range squares {
			into = appendFloat(into, x)
		}
	}
	return into
}

// maxReport bounds what one owner reports.
func (d *Declaration) maxReport(owner int) uint64 {
	n := uint64(0)
	for _, p := range d.Pieces {
		if p.Owner == owner && d.hasGradient(p) {
			n += 8 * uint64(1+d.maxSquares(p))
		}
	}
	return n
}

// decodeReport calls each with the squares of every piece of an owner that
// has a gradient.
func (d *Declaration) decodeReport(from []byte, owner int, each func(piece int, squares []float64)) error {
	for i, p := range d.Pieces {
		if p.Owner != owner || !d.hasGradient(p) {
			continue
		}
		if len(from) < 8 {
			return fmt.Errorf("norm frame ends before variable %q", d.Variables[p.Variable].Name)
		}
		n := binary.LittleEndian.Uint64(from)
		from = from[8:]
		if n > uint64(d.maxSquares(p)) || n > uint64(len(from)/8) {
			return fmt.Errorf("norm frame with %d sums for variable %q, want at most %d", n, d.Variables[p.Variable].Name, d.maxSquares(p))
		}
		squares := make([]float64, n)
		for j := range squares {
			squares[j] = float(from[8*j:])
		}
		from = from[8*n:]
		each(i, squares)
	}
	if len(from) > 0 {
		return fmt.Errorf("norm frame with %d bytes too many", len(from))
	}
	return nil
}

// hasGradient reports whether a piece counts in the norm.
func (d *Declaration) hasGradient(p Piece) bool {
	return p.Variable != d.tally() && !d.Variables[p.Variable].follows()
}

// maxSquares is how many sums of squares a piece can have.
func (d *Declaration) maxSquares(p Piece) int {
	if d.Variables[p.Variable].Sparse != nil {
		return p.Count
	}
	return (p.Count + BlockElements - 1) / BlockElements
}

func appendFloat(into []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint64(into, math.Float64bits(x))
}

func float(from []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(from)) }
