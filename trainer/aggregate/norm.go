package aggregate

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/layout"
)

// Format of a report: for each shard that has a gradient, in the order of the
// declaration's pieces, a u64 with the number of sums of squares, followed by
// these sums as f64. All numbers are little-endian.

// Report encodes the sums of squares of a group's gradients, from which the
// group's first worker computes the norm. It reuses the memory of into.
func Report(shards []*Shard, group int, into []byte) []byte {
	into = into[:0]
	for _, shard := range shards {
		if !shard.measured {
			continue
		}
		squares := shard.sums[group].squares
		into = binary.LittleEndian.AppendUint64(into, uint64(len(squares)))
		into, _ = binary.Append(into, binary.LittleEndian, squares) // cannot fail for numbers
	}
	return into
}

// MaxReport returns the maximum size in bytes of the Report of one shard
// holder.
func MaxReport(d *layout.Declaration, holder int) uint64 {
	n := uint64(0)
	for _, p := range d.Pieces {
		if p.Holder == holder && d.HasGradient(p) {
			n += 8 * uint64(1+d.MaxSquares(p))
		}
	}
	return n
}

// Norm computes the global gradient norm of a step from the reports of all
// shard holders. It runs on the first worker of a group. It adds in the order
// of the declaration: by variable, then by block or row. So the result has the
// same bits, whatever the pieces of the variables are.
type Norm struct {
	d     *layout.Declaration
	order []int // indices of pieces, sorted by variable and then offset: the order of addition
	due   int   // number of shard holders that send a report in each step

	mu      sync.Mutex
	squares [][]float64 // by piece: sums of squares that its holder reported; nil for a piece without a gradient
	came    []bool      // by holder: true if the holder's report of the current step has arrived
	count   int         // number of holders whose report of the current step has arrived
}

// NewNorm returns a Norm for the pieces and shard holders of d.
func NewNorm(d *layout.Declaration) *Norm {
	n := &Norm{d: d, squares: make([][]float64, len(d.Pieces)), came: make([]bool, len(d.Holders))}
	for i := range d.Pieces {
		n.order = append(n.order, i)
	}
	for _, holds := range d.Holding() {
		if holds {
			n.due++
		}
	}
	slices.SortFunc(n.order, func(a, b int) int {
		p, q := d.Pieces[a], d.Pieces[b]
		return cmp.Or(cmp.Compare(p.Variable, q.Variable), cmp.Compare(p.Offset, q.Offset))
	})
	return n
}

// Take adds the report of one shard holder. When the last report of a step has
// arrived, complete is true and norm is the norm of the whole gradient.
func (n *Norm) Take(holder int, report []byte) (norm float64, complete bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.came[holder] {
		return 0, false, errors.New("sent a second norm report for one step")
	}
	if err := n.decode(report, holder); err != nil {
		return 0, false, err
	}
	n.came[holder] = true
	if n.count++; n.count < n.due {
		return 0, false, nil
	}
	n.count = 0
	clear(n.came)
	total := 0.0
	for _, i := range n.order {
		for _, x := range n.squares[i] {
			total += x
		}
	}
	return math.Sqrt(total), true, nil
}

// decode reads a holder's report into n.squares. The caller holds n.mu.
func (n *Norm) decode(from []byte, holder int) error {
	d := n.d
	for i, p := range d.Pieces {
		if p.Holder != holder || !d.HasGradient(p) {
			continue
		}
		name := d.Variables[p.Variable].Name
		if len(from) < 8 {
			return fmt.Errorf("norm frame ends before variable %q", name)
		}
		count := binary.LittleEndian.Uint64(from)
		from = from[8:]
		if count > uint64(d.MaxSquares(p)) || count > uint64(len(from)/8) {
			return fmt.Errorf("norm frame with %d sums for variable %q, want at most %d", count, name, d.MaxSquares(p))
		}
		n.squares[i] = make([]float64, count)
		used, err := binary.Decode(from, binary.LittleEndian, n.squares[i])
		if err != nil {
			return fmt.Errorf("norm frame, variable %q: %w", name, err)
		}
		from = from[used:]
	}
	if len(from) > 0 {
		return fmt.Errorf("norm frame with %d bytes too many", len(from))
	}
	return nil
}
