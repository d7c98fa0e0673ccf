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

// A report has, for each shard with a gradient in the order of the
// declaration's pieces, the number of its sums of squares u64 and that many f64,
// all of them little-endian.

// Report encodes the squares of a group's step.
func Report(shards []*Shard, group int, into []byte) []byte {
	into = into[:0]
	for _, shard := range shards {
		if !shard.measured {
			continue
		}
		squares := shard.sums[group].squares
		into = binary.LittleEndian.AppendUint64(into, uint64(len(squares)))
		into, _ = binary.Append(into, binary.LittleEndian, squares) // numbers always encode
	}
	return into
}

// MaxReport bounds what one holder reports.
func MaxReport(d *layout.Declaration, holder int) uint64 {
	n := uint64(0)
	for _, p := range d.Pieces {
		if p.Holder == holder && d.HasGradient(p) {
			n += 8 * uint64(1+d.MaxSquares(p))
		}
	}
	return n
}

// Norm adds, on the worker that leads a group, what all holders report of a
// step. The order of the additions is that of the declaration: by variable,
// then by block or row, so the sum has the same bits wherever pieces are.
type Norm struct {
	d     *layout.Declaration
	order []int // indices of pieces, sorted by variable and then offset: the order of addition
	due   int   // number of holders that report

	mu      sync.Mutex
	squares [][]float64 // by piece: sums of squares that its holder reported; nil for a piece without a gradient
	came    []bool      // by holder: its report of the present step has come
	count   int         // number of holders whose report has come
}

// NewNorm adds the squares of all pieces of d.
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

// Take takes the report of a holder. After the last report of a step, complete is true
// and norm is that of the whole gradient.
func (n *Norm) Take(holder int, report []byte) (norm float64, complete bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.came[holder] {
		return 0, false, errors.New("norm of a step came twice")
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

// decode takes the squares of every piece of a holder that has a gradient. It
// needs n.mu.
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
