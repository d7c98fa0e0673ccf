package hooks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/replica"
)

// Runner calls the hooks of one worker. A nil *Runner calls none.
type Runner struct {
	chief bool
	hooks []*scheduled
	now   func() time.Time // time.Now, or a fake clock in a test

	stepping sync.Mutex // held while a step and its hooks run
	previous int        // number of the last step that began; -1 before the first step
	stop     bool       // true once a hook has returned ErrDone
	begun    bool       // true once the Begin functions were called
}

// scheduled is a hook, with the state that decides in which steps its
// functions are called.
type scheduled struct {
	Hook
	own    bool      // this worker calls the hook's functions; false for a ChiefOnly hook on workers other than the chief
	due    bool      // true if the hook's functions are called in the current step
	called time.Time // start of the last step in which the functions were called; zero before the first one
}

// Check returns an error if a hook is invalid or if two hooks have the same
// name.
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

// New returns a Runner for hooks, or nil if there are none. chief is true on
// worker 0.
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

// Describe returns one line for each hook. The lines must be equal on all
// workers.
func (r *Runner) Describe() (all []string) {
	if r == nil {
		return nil
	}
	for _, h := range r.hooks {
		all = append(all, h.String())
	}
	return all
}

// HaveGradients reports whether a hook of this worker has a Gradient function.
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

// hookNameKey is the context key under which a hook's context contains the hook's
// name.
type hookNameKey struct{}

// Enter waits until no other goroutine of this worker takes a step. The caller
// must call leave after the step and its hooks. If a hook itself calls Step,
// Enter returns an error instead of waiting forever.
func (r *Runner) Enter(ctx context.Context) (leave func(), err error) {
	if name, inside := ctx.Value(hookNameKey{}).(string); inside {
		return nil, fmt.Errorf("hook %q takes a step: a hook may evaluate and read variables only", name)
	}
	r.stepping.Lock()
	return r.stepping.Unlock, nil
}

// Before calls the Before functions of a step, and before the first step the
// Begin functions.
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

// decide sets h.due: whether the hook's functions are called in the step that
// begins now.
func (h *scheduled) decide(step, previous int, now time.Time) {
	onTime := h.Every > 0 && (h.called.IsZero() || now.Sub(h.called) >= h.Every)
	h.due = h.own && (h.onStep(step, previous) || onTime)
	if h.due {
		h.called = now
	}
}

// onStep reports whether step, or a step after previous that this worker
// skipped, is a multiple of EverySteps.
func (h *scheduled) onStep(step, previous int) bool {
	n := max(h.EverySteps, 1)
	return h.Every == 0 && (step%n == 0 || previous >= 0 && step/n > previous/n)
}

// After calls the After functions of a step.
func (r *Runner) After(ctx context.Context, result replica.Result) error {
	for _, h := range r.hooks {
		if err := r.call(ctx, h, h.due && h.After != nil, "after the step", func(ctx context.Context) error { return h.After(ctx, result) }); err != nil {
			return err
		}
	}
	return nil
}

// AfterSave calls the Checkpoint functions. The chief calls it when a checkpoint
// of the given number of steps is completely written.
func (r *Runner) AfterSave(ctx context.Context, steps int) error {
	for _, h := range r.hooks {
		what := fmt.Sprintf("checkpoint of step %d", steps)
		if err := r.call(ctx, h, h.Checkpoint != nil, what, func(ctx context.Context) error { return h.Checkpoint(ctx, steps) }); err != nil {
			return err
		}
	}
	return nil
}

// End calls the End functions after a training of the given number of steps
// has ended without error.
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

// call calls the function do of hook h, if wanted is true. moment names the
// function in an error.
func (r *Runner) call(ctx context.Context, h *scheduled, wanted bool, moment string, do func(context.Context) error) error {
	if !wanted {
		return nil
	}
	err := Guarded(func() error { return do(context.WithValue(ctx, hookNameKey{}, h.Name)) })
	switch {
	case errors.Is(err, ErrDone):
		r.stop = true
	case err != nil:
		return fmt.Errorf("hook %q: %s: %w", h.Name, moment, err)
	}
	return nil
}

// Votes reports whether the workers must agree after this step on whether to
// stop, in sync mode. They must if a hook of any worker may have returned
// ErrDone. The result is the same on all workers.
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

// Stops reports whether a hook of this worker has returned ErrDone.
func (r *Runner) Stops() bool { return r.stop }
