package hooks

import (
	"context"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// GradientOf describes the gradient of the variable v. The slice memory holds
// the gradient's values, which GradientOf does not copy. rows are the rows of
// an embedding that memory contains; nil means that memory contains the whole
// gradient.
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

// Gradients passes the gradients of one run of the model to the hooks
// (functions of the program) in its own goroutine. The run of the model
// continues meanwhile. A nil *Gradients calls no hooks.
type Gradients struct {
	ctx           context.Context
	hooks         []*scheduled
	step, virtual int
	waiting       chan queueEntry // gradients that wait for their hooks; closed by Wait
	ended         chan struct{}   // closed when the goroutine that calls the hooks has returned
	err           error           // first error of a hook; nil: none so far
}

// queueEntry is one entry in the queue of gradients: a gradient, and the function
// that sends it to other tasks after the hooks have seen it.
type queueEntry struct {
	gradient Gradient
	hooked   bool   // true if hooks are called with the gradient; false for an entry that only calls send
	send     func() // called after the hooks, unless one of them fails
}

// maxQueued is the maximum number of gradients that wait for their hooks. If
// the queue is full, Take blocks the run of the model.
const maxQueued = 256

// Gradients starts the goroutine that passes the gradients of one virtual
// worker in one step to the hooks. The caller must call Wait at the end of the
// run, even if the run failed. The result is nil if no hook wants gradients in
// this step.
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
	g.waiting, g.ended = make(chan queueEntry, maxQueued), make(chan struct{})
	go g.pass()
	return g
}

// Take queues a gradient and returns. Later the goroutine of g calls the hooks
// with the gradient, and after them send.
func (g *Gradients) Take(gradient Gradient, send func()) {
	if g == nil {
		send()
		return
	}
	g.waiting <- queueEntry{gradient, true, send}
}

// Follow queues a call of send after all gradients that were queued before. No
// hook is called for this entry.
func (g *Gradients) Follow(send func()) {
	if g == nil {
		send()
		return
	}
	g.waiting <- queueEntry{send: send}
}

// Wait waits until the queue is empty and ends the goroutine. It returns the
// first error of a hook. No gradient was sent after that error.
func (g *Gradients) Wait() error {
	if g == nil {
		return nil
	}
	close(g.waiting)
	<-g.ended
	return g.err
}

// Observe calls the hooks for a gradient in the caller's goroutine. It is for
// gradients that are complete only after the run of the model. The caller must
// call Wait first.
func (g *Gradients) Observe(gradient Gradient) error {
	if g == nil {
		return nil
	}
	gradient.Step, gradient.VirtualWorker = g.step, g.virtual
	for _, h := range g.hooks {
		err := Guarded(func() error { return h.Gradient(context.WithValue(g.ctx, hookNameKey{}, h.Name), gradient) })
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
			g.err = g.Observe(p.gradient)
		}
		if g.err == nil {
			p.send()
		}
	}
}
