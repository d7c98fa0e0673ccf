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

// progress is how far a client is.
type progress struct {
	step   uint64 // that is under way, or the next one
	within bool   // a step is under way
}

func (p *progress) begin() { p.within = true }

func (p *progress) moveTo(step uint64) { p.step = step }

func (p *progress) end() { p.within = false }

// ending is whether and why the training of a worker has ended.
type ending struct {
	ctx     context.Context // ends when the training has failed or the connections are closed; the cause says why
	stop    context.CancelCauseFunc
	parting atomic.Bool // the connections end in good order
}

func newEnding() *ending {
	e := &ending{}
	e.ctx, e.stop = context.WithCancelCause(context.Background())
	return e
}

// fail ends the training, once, with err.
func (e *ending) fail(err error) {
	if !e.parting.Load() {
		e.stop(err)
	}
}

// reason returns why the training has ended; nil: it has not.
func (e *ending) reason() error {
	if e.parting.Load() && e.ctx.Err() == nil {
		return transition.ErrEnded
	}
	return context.Cause(e.ctx)
}

// memory is where the worker has the values of dense variables.
type memory struct {
	d      *layout.Declaration
	values [][]byte // by variable, and that of the loss
	device Device   // has the values of all but the loss; nil: there is none
}

func newMemory(config *Config) (*memory, error) {
	d := &config.Declaration
	m := &memory{d: d, values: config.Values, device: config.Device}
	if m.device != nil {
		m.values = make([][]byte, len(d.Variables))
	}
	m.values = append(slices.Clone(m.values), wire.Bytes(make([]float64, 1+d.Metrics)))
	for i := range len(d.Variables) + 1 {
		v := d.Variable(i)
		want := v.NumElements() * v.Dtype.Size()
		if v.Sparse == nil && !m.onDevice(i) && (i >= len(m.values) || len(m.values[i]) != want) {
			return nil, fmt.Errorf("variable %q: no memory of %d bytes for its values", v.Name, want)
		}
	}
	return m, nil
}

// onDevice reports whether the device has the values of a dense variable.
func (m *memory) onDevice(variable int) bool { return m.device != nil && variable != m.d.LossIndex() }

// of is the memory of a dense piece; nil if the piece is sparse.
func (m *memory) of(p layout.Piece) []byte {
	v := m.d.Variable(p.Variable)
	switch {
	case v.Sparse != nil:
		return nil
	case m.onDevice(p.Variable):
		return m.device.Read(p)
	}
	size := v.Dtype.Size()
	return m.values[p.Variable][p.Offset*size : (p.Offset+p.Count)*size]
}

// loss returns the loss of the step, and the metrics.
func (m *memory) loss() []float64 { return wire.Floats[float64](m.values[m.d.LossIndex()]) }
