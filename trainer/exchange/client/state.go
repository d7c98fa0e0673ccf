package client

import (
	"context"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/exchange/transition"
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
