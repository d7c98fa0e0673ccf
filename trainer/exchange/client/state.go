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

// progress is the position of a client in the training.
type progress struct {
	step   uint64 // current step or, between two steps, the next one
	within bool   // a step is under way
}

// ending records whether and why the training of a worker has ended.
type ending struct {
	ctx     context.Context // ends when the training has failed or the connections are closed; its cause is the reason
	stop    context.CancelCauseFunc
	parting atomic.Bool // the client is closing: fail has no effect
}

func newEnding() *ending {
	e := &ending{}
	e.ctx, e.stop = context.WithCancelCause(context.Background())
	return e
}

// fail ends the training with err. Only the first call counts.
func (e *ending) fail(err error) {
	if !e.parting.Load() {
		e.stop(err)
	}
}

// reason returns why the training has ended; nil: it has not ended.
func (e *ending) reason() error {
	if e.parting.Load() && e.ctx.Err() == nil {
		return transition.ErrEnded
	}
	return context.Cause(e.ctx)
}

// memory is the memory of a worker for the values of dense variables.
type memory struct {
	d       *layout.Declaration
	values  [][]byte             // by variable, then the loss
	first   [][]byte             // see Config.First
	arrived func(p layout.Piece) // see Config.Arrived
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

// of returns the value of a dense piece; nil if the piece is sparse.
func (m *memory) of(p layout.Piece) []byte {
	v := m.d.Variable(p.Variable)
	if v.Sparse != nil {
		return nil
	}
	size := v.Dtype.Size()
	return m.values[p.Variable][p.Offset*size : (p.Offset+p.Count)*size]
}

// initial returns the first values of a piece that the chief has; nil if they follow
// from the seed.
func (m *memory) initial(p layout.Piece) []byte {
	v := m.d.Variable(p.Variable)
	if v.Sparse == nil || !v.Sparse.First.Given() {
		return m.of(p)
	}
	return m.first[p.Variable][p.Offset*v.UnitBytes() : (p.Offset+p.Count)*v.UnitBytes()]
}

// initial reports whether the first values are this worker's.
func (c *Config) initial() bool { return c.Peers.Self.IsChief() && c.Declaration.Checkpoint == "" }

// came reports to the caller that a piece has its new value.
func (m *memory) came(p layout.Piece) {
	if m.arrived != nil && p.Variable != m.d.LossIndex() && m.d.Variables[p.Variable].Sparse == nil {
		m.arrived(p)
	}
}

// loss returns the loss and the metrics of the step.
func (m *memory) loss() []float64 { return wire.Floats[float64](m.values[m.d.LossIndex()]) }
