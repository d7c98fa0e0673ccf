package owner

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// norm adds, on the worker that leads a group, what all owners report of a
// step. The order of the additions is that of the declaration: by variable,
// then by block or row, so the sum has the same bits wherever pieces are.
type norm struct {
	order []int // pieces by variable and offset

	mu      sync.Mutex
	squares [][]float64 // by piece
	came    []bool      // by owner
	count   int
	due     int // owners that report
}

func newNorm(d *Declaration) *norm {
	n := &norm{squares: make([][]float64, len(d.Pieces)), came: make([]bool, len(d.Owners))}
	for i := range d.Pieces {
		n.order = append(n.order, i)
	}
	for _, owns := range d.owning() {
		if owns {
			n.due++
		}
	}
	slices.SortFunc(n.order, func(a, b int) int {
		p, q := d.Pieces[a], d.Pieces[b]
		return cmp.Or(cmp.Compare(p.Variable, q.Variable), cmp.Compare(p.Offset, q.Offset))
	})
	return n
}

// take notes an owner's report. complete: it was the last one; norm is then
// that of the whole gradient.
func (n *norm) take(d *Declaration, owner int, report []byte) (norm float64, complete bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.came[owner] {
		return 0, false, fmt.Errorf("norm of a step came twice")
	}
	err = d.decodeReport(report, owner, func(piece int, squares []float64) { n.squares[piece] = squares })
	if err != nil {
		return 0, false, err
	}
	n.came[owner] = true
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

// factor is what gradients of a norm are multiplied by.
func (d *Declaration) factor(norm float64) float64 {
	if d.clips() && norm > d.Clip {
		return d.Clip / norm
	}
	return 1
}

// takeNorm takes the report of an owner; after the last one it tells all
// owners how to scale.
func (c *Client) takeNorm(owner int, report []byte) {
	now := c.layout.Load()
	norm, complete, err := now.norm.take(now.d, owner, report)
	if err != nil {
		c.fail(&peers.PeerError{Task: c.d.Owners[owner], Addr: c.config.Cluster.Addr(c.d.Owners[owner]), Err: err})
		return
	}
	if !complete {
		return
	}
	factor := c.d.factor(norm)
	body := binary.LittleEndian.AppendUint64(nil, math.Float64bits(norm))
	body = binary.LittleEndian.AppendUint64(body, math.Float64bits(factor))
	for i, l := range c.links {
		if l == nil || !now.owns[i] {
			continue
		}
		l.volumes[c.d.tally()].sent.Add(uint64(wire.HeaderSize + len(body)))
		if err := l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Scale}, Payload: body}); err != nil {
			l.running.Go(func() { l.sendFailed(err) })
		}
	}
	if c.local != nil && !c.local.idle() {
		if err := c.local.serves.Load().engine.scale(c.rank, norm, factor); err != nil {
			c.fail(err)
		}
	}
}
