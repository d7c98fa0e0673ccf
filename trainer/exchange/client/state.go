package client

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// progress is a client's position in the training.
type progress struct {
	step   uint64 // number of the current step or, between two steps, of the next one
	within bool   // true if a step has begun and is not finished
}

// ending records whether training has ended on this worker, and why.
type ending struct {
	ctx     context.Context // canceled when the training fails or the client closes; its cause is the reason
	stop    context.CancelCauseFunc
	parting atomic.Bool // true if the client is closing; fail then has no effect
}

func newEnding() *ending {
	e := &ending{}
	e.ctx, e.stop = context.WithCancelCause(context.Background())
	return e
}

// fail ends the training on this worker with err. Only the first call has an
// effect.
func (e *ending) fail(err error) {
	if !e.parting.Load() {
		e.stop(err)
	}
}

// reason returns why training has ended on this worker, or nil if it has not
// ended.
func (e *ending) reason() error {
	if e.parting.Load() && e.ctx.Err() == nil {
		return transition.ErrEnded
	}
	return context.Cause(e.ctx)
}

// memory is the worker's memory for the values of dense variables.
type memory struct {
	d       *layout.Declaration
	values  [][]byte             // memory for the values of each variable; the last element is for the loss
	first   [][]byte             // initial rows of sparse variables, see Config.First
	arrived func(p layout.Piece) // called after a new value has arrived, see Config.Arrived
}

func newMemory(config *Config) (*memory, error) {
	d := &config.Declaration
	m := &memory{d: d, first: config.First, arrived: config.Arrived}
	m.values = append(slices.Clone(config.Values), wire.Bytes(make([]float64, 1+d.Metrics)))
	for i := range len(d.Variables) + 1 {
		v := d.Variable(i)
		want := v.NumElements() * v.Dtype.Size()
		if v.Sparse == nil && (i >= len(m.values) || len(m.values[i]) != want) {
			return nil, fmt.Errorf("variable %q: no memory of %d bytes for its values", v.Name, want)
		}
		if given := v.Sparse != nil && v.Sparse.First.Given(); given && config.initial() && (i >= len(m.first) || len(m.first[i]) != want) {
			return nil, fmt.Errorf("variable %q: no first values of %d bytes", v.Name, want)
		}
	}
	return m, nil
}

// of returns the worker's memory for the values of a dense piece. It returns
// nil if the piece is sparse.
func (m *memory) of(p layout.Piece) []byte {
	v := m.d.Variable(p.Variable)
	if v.Sparse != nil {
		return nil
	}
	size := v.Dtype.Size()
	return m.values[p.Variable][p.Offset*size : (p.Offset+p.Count)*size]
}

// initial returns the initial values of a piece, which the chief (worker 0)
// sends. It returns nil if the task that stores the piece draws the values
// from a seed.
func (m *memory) initial(p layout.Piece) []byte {
	v := m.d.Variable(p.Variable)
	if v.Sparse == nil || !v.Sparse.First.Given() {
		return m.of(p)
	}
	return m.first[p.Variable][p.Offset*v.UnitBytes() : (p.Offset+p.Count)*v.UnitBytes()]
}

// initial reports whether this worker provides the initial values. It does if
// it is the chief (worker 0) and training does not resume from a checkpoint.
func (c *Config) initial() bool { return c.Peers.Self.IsChief() && c.Declaration.Checkpoint == "" }

// came calls Config.Arrived for a dense piece whose new value has arrived.
func (m *memory) came(p layout.Piece) {
	if m.arrived != nil && p.Variable != m.d.LossIndex() && m.d.Variables[p.Variable].Sparse == nil {
		m.arrived(p)
	}
}

// loss returns the memory that contains the loss of the step, followed by its
// metrics.
func (m *memory) loss() []float64 { return wire.Floats[float64](m.values[m.d.LossIndex()]) }
