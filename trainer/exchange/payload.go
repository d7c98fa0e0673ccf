package exchange

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// The payloads of frames that are neither numbers of a variable nor JSON. All
// of them are little-endian.
//
//	step    rate f64, by part: virtual workers present u32
//	done    virtual workers present u64, norm f64, updates u64, whether it was saved before u8
//	norm    by slot that has a gradient, in the order of the declaration's
//	        pieces: number of sums u64, that many f64
//	scale   norm f64, factor f64
const doneSize = 25

func stepSize(c *layout.Contributor) int { return 8 + 4*len(c.Parts) }

func encodeBeginning(into []byte, b aggregate.Beginning) []byte {
	into = appendFloat(into[:0], b.Rate)
	for _, n := range b.Present {
		into = binary.LittleEndian.AppendUint32(into, uint32(n))
	}
	return into
}

// decodeBeginning reads stepSize bytes. present is room for the leaves.
func decodeBeginning(from []byte, present []int) aggregate.Beginning {
	b := aggregate.Beginning{Rate: float(from), Present: present[:0]}
	for from = from[8:]; len(from) > 0; from = from[4:] {
		b.Present = append(b.Present, int(binary.LittleEndian.Uint32(from)))
	}
	return b
}

func encodeOutcome(into []byte, o aggregate.Outcome) []byte {
	into = binary.LittleEndian.AppendUint64(into[:0], uint64(o.VirtualWorkers))
	into = appendFloat(into, o.Norm)
	into = binary.LittleEndian.AppendUint64(into, o.Updates)
	if o.Saved {
		return append(into, 1)
	}
	return append(into, 0)
}

// decodeOutcome reads doneSize bytes.
func decodeOutcome(from []byte) (aggregate.Outcome, error) {
	if from[24] > 1 {
		return aggregate.Outcome{}, fmt.Errorf("the end of a step says %d where 0 or 1 is due", from[24])
	}
	return aggregate.Outcome{
		VirtualWorkers: int(binary.LittleEndian.Uint64(from)),
		Norm:           float(from[8:]),
		Updates:        binary.LittleEndian.Uint64(from[16:]),
		Saved:          from[24] == 1,
	}, nil
}

func appendFloat(into []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint64(into, math.Float64bits(x))
}

func float(from []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(from)) }

// CutKind says when a cut is made, and what the other workers do meanwhile.
type CutKind uint32

// The kinds of cuts.
const (
	Passing  CutKind = iota // the others go on as soon as it is saved
	Holding                 // they go on when the chief begins its next step, or concludes
	cutKinds                // how many there are
)

// encodeCut is nil for no cut.
func encodeCut(cut []uint64) (b []byte) {
	for _, steps := range cut {
		b = binary.LittleEndian.AppendUint64(b, steps)
	}
	return b
}

// readCut reads the payload of a frame, of which h is the header.
func readCut(d *layout.Declaration, h wire.Header, conn *wire.Conn) ([]uint64, error) {
	n := len(d.Groups())
	if h.Length != uint64(8*n) {
		return nil, fmt.Errorf("%s frame of %d bytes, want %d for %d groups", h.Kind, h.Length, 8*n, n)
	}
	b := make([]byte, 8*n)
	if err := conn.Payload(b); err != nil {
		return nil, err
	}
	cut := make([]uint64, n)
	for i := range cut {
		if cut[i] = binary.LittleEndian.Uint64(b[8*i:]); cut[i] > layout.MaxFirst {
			return nil, fmt.Errorf("%s frame with %d steps of a group", h.Kind, cut[i])
		}
	}
	return cut, nil
}

// roomSize is the payload of a holder's answer: bytes needed u64, free u64.
const roomSize = 16
