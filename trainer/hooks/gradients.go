package hooks

import (
	"context"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// GradientOf describes the gradient of a variable in memory, which is not copied. rows
// are those of an embedding; nil means that memory has the whole variable.
func GradientOf(v layout.Variable, rows []int64, memory []byte) Gradient {
	g := Gradient{Variable: v.Name, Shape: v.Shape, Rows: rows}
	if rows != nil {
		g.Shape = append([]int{len(rows)}, v.Shape[1:]...)
	}
	if v.Dtype == layout.Float32 {
		g.Values = wire.Floats[float32](memory)
	} else {
		g.Values = wire.Floats[float64](memory)
	}
	return g
}

// Gradients takes the gradients of one run past their hooks, in a goroutine of its own, so
// that the run goes on meanwhile. The methods of nil are for runs without hooks.
type Gradients struct {
	ctx           context.Context
	hooks         []*scheduled
	step, virtual int
	waiting       chan passing  // closed by Wait
	ended         chan struct{} // closed when the goroutine has ended
	err           error         // the first error; nil means none
}

// passing is one gradient on its way.
type passing struct {
	gradient Gradient
	hooked   bool   // hooks see the gradient
	send     func() // called after its hooks
}

// mostWaiting bounds the gradients that wait for their hooks. The run waits if there are
// more.
const mostWaiting = 256

// Gradients begins a run for a virtual worker. The caller calls Wait at its end, also if
// it failed. It returns nil if no hook sees gradients in this step.
func (r *Runner) Gradients(ctx context.Context, step, virtual int) *Gradients {
	if r == nil {
		return nil
	}
	g := &Gradients{ctx: ctx, step: step, virtual: virtual}
	for _, h := range r.hooks {
		if h.due && h.Gradient != nil {
			g.hooks = append(g.hooks, h)
		}
	}
	if g.hooks == nil {
		return nil
	}
	g.waiting, g.ended = make(chan passing, mostWaiting), make(chan struct{})
	go g.pass()
	return g
}

// Take calls the hooks for a gradient, and then send. It returns before they are called.
func (g *Gradients) Take(gradient Gradient, send func()) {
	if g == nil {
		send()
		return
	}
	g.waiting <- passing{gradient, true, send}
}

// Follow calls send after the gradients that were taken before, without hooks.
func (g *Gradients) Follow(send func()) {
	if g == nil {
		send()
		return
	}
	g.waiting <- passing{send: send}
}

// Wait waits until all gradients were sent. It returns the first error of a hook: no
// gradient was sent after it.
func (g *Gradients) Wait() error {
	if g == nil {
		return nil
	}
	close(g.waiting)
	<-g.ended
	return g.err
}

// See calls the hooks for a gradient and returns after them. It is for gradients that are
// complete only after the run, and comes after Wait.
func (g *Gradients) See(gradient Gradient) error {
	if g == nil {
		return nil
	}
	gradient.Step, gradient.VirtualWorker = g.step, g.virtual
	for _, h := range g.hooks {
		err := Guarded(func() error { return h.Gradient(context.WithValue(g.ctx, within{}, h.Name), gradient) })
		if errors.Is(err, ErrDone) {
			err = errors.New("it returned ErrDone: only Begin, Before, After and Checkpoint stop a training")
		}
		if err != nil {
			return fmt.Errorf("hook %q: gradient of %q: %w", h.Name, gradient.Variable, err)
		}
	}
	return nil
}

func (g *Gradients) pass() {
	defer close(g.ended)
	for p := range g.waiting {
		if g.err == nil && p.hooked {
			g.err = g.See(p.gradient)
		}
		if g.err == nil {
			p.send()
		}
	}
}
