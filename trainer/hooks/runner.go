package hooks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/replica"
)

// Runner calls the hooks of one worker. The methods of nil do nothing.
type Runner struct {
	chief bool
	hooks []*scheduled
	now   func() time.Time // time.Now, or a test's clock

	stepping sync.Mutex // held while a step and its hooks run
	previous int        // number of the last step that began; -1 means none
	stop     bool       // a hook has returned ErrDone
	begun    bool       // Begin was called
}

// scheduled is a hook, and when it is called.
type scheduled struct {
	Hook
	own    bool      // this worker calls its functions
	due    bool      // they are called in the present step
	called time.Time // when the last step began in which they were; zero means in none
}

// Check refuses hooks that cannot be meant.
func Check(hooks []Hook) error {
	names := map[string]bool{}
	for i, h := range hooks {
		switch {
		case h.Name == "":
			return fmt.Errorf("hook %d has no name: set Hook.Name", i)
		case names[h.Name]:
			return fmt.Errorf("two hooks have the name %q: give each another one", h.Name)
		}
		if err := h.check(); err != nil {
			return err
		}
		names[h.Name] = true
	}
	return nil
}

// New returns what calls hooks, nil if there are none.
func New(hooks []Hook, chief bool) *Runner {
	if len(hooks) == 0 {
		return nil
	}
	r := &Runner{chief: chief, now: time.Now, previous: -1}
	for _, h := range hooks {
		r.hooks = append(r.hooks, &scheduled{Hook: h, own: chief || !h.ChiefOnly})
	}
	return r
}

// Describe describes what all workers must have in common, one line for each hook.
func (r *Runner) Describe() (all []string) {
	if r == nil {
		return nil
	}
	for _, h := range r.hooks {
		all = append(all, h.String())
	}
	return all
}

// HaveGradients reports whether a hook of this worker wants to see gradients.
func (r *Runner) HaveGradients() bool {
	if r == nil {
		return false
	}
	for _, h := range r.hooks {
		if h.own && h.Gradient != nil {
			return true
		}
	}
	return false
}

// within is the key of a context's value: the name of the hook that was given it.
type within struct{}

// Enter waits until no other goroutine takes a step. The caller calls leave after the
// step's hooks. Enter refuses a hook that takes a step, which would wait for itself.
func (r *Runner) Enter(ctx context.Context) (leave func(), err error) {
	if name, inside := ctx.Value(within{}).(string); inside {
		return nil, fmt.Errorf("hook %q takes a step: a hook may evaluate and read variables only", name)
	}
	r.stepping.Lock()
	return r.stepping.Unlock, nil
}

// Before begins a step, and before the first one the training.
func (r *Runner) Before(ctx context.Context, step int) error {
	now := r.now()
	for _, h := range r.hooks {
		h.decide(step, r.previous, now)
	}
	r.previous = step
	if !r.begun {
		r.begun = true
		for _, h := range r.hooks {
			if err := r.call(ctx, h, h.own && h.Begin != nil, "begin", func(ctx context.Context) error { return h.Begin(ctx) }); err != nil {
				return err
			}
		}
	}
	for _, h := range r.hooks {
		if err := r.call(ctx, h, h.due && h.Before != nil, "before the step", func(ctx context.Context) error { return h.Before(ctx, step) }); err != nil {
			return err
		}
	}
	return nil
}

// decide decides whether the functions are called in a step that begins now.
func (h *scheduled) decide(step, previous int, now time.Time) {
	onTime := h.Every > 0 && (h.called.IsZero() || now.Sub(h.called) >= h.Every)
	h.due = h.own && (h.onStep(step, previous) || onTime)
	if h.due {
		h.called = now
	}
}

// onStep reports whether a step, or one that was left out since the previous one, is
// among those that are counted.
func (h *scheduled) onStep(step, previous int) bool {
	n := max(h.EverySteps, 1)
	return h.Every == 0 && (step%n == 0 || previous >= 0 && step/n > previous/n)
}

// After ends a step.
func (r *Runner) After(ctx context.Context, result replica.Result) error {
	for _, h := range r.hooks {
		if err := r.call(ctx, h, h.due && h.After != nil, "after the step", func(ctx context.Context) error { return h.After(ctx, result) }); err != nil {
			return err
		}
	}
	return nil
}

// Saved is called on the chief after all of a checkpoint is written, with the number of
// steps in it.
func (r *Runner) Saved(ctx context.Context, steps int) error {
	for _, h := range r.hooks {
		what := fmt.Sprintf("checkpoint of step %d", steps)
		if err := r.call(ctx, h, h.Checkpoint != nil, what, func(ctx context.Context) error { return h.Checkpoint(ctx, steps) }); err != nil {
			return err
		}
	}
	return nil
}

// End ends a training that has begun and went well, after so many steps.
func (r *Runner) End(ctx context.Context, steps int) error {
	if r == nil || !r.begun {
		return nil
	}
	for _, h := range r.hooks {
		if err := r.call(ctx, h, h.own && h.End != nil, "end", func(ctx context.Context) error { return h.End(ctx, steps) }); err != nil {
			return err
		}
	}
	return nil
}

// call calls one function of a hook if it is to be called.
func (r *Runner) call(ctx context.Context, h *scheduled, wanted bool, moment string, do func(context.Context) error) error {
	if !wanted {
		return nil
	}
	err := Guarded(func() error { return do(context.WithValue(ctx, within{}, h.Name)) })
	switch {
	case errors.Is(err, ErrDone):
		r.stop = true
	case err != nil:
		return fmt.Errorf("hook %q: %s: %w", h.Name, moment, err)
	}
	return nil
}

// Votes reports whether workers in step tell each other after a step whether they stop:
// whether a hook of any worker may have been called that can stop the training. All
// workers get the same answer.
func (r *Runner) Votes(step int) bool {
	if r == nil {
		return false
	}
	for _, h := range r.hooks {
		if h.stops() && (h.Every > 0 || h.onStep(step, step-1)) {
			return true
		}
	}
	return false
}

// Stops reports whether a hook of this worker has stopped the training.
func (r *Runner) Stops() bool { return r.stop }
