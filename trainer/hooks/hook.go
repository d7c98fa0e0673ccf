// Package hooks calls functions of the user's program at certain moments of a
// training. These functions can stop the training.
//
//	err := hooks.Check(list)
//	r := hooks.New(list, chief)
//	... in every step of a worker:
//	leave, err := r.Enter(ctx)
//	err = r.Before(ctx, step)
//	line := r.Gradients(ctx, step, virtualWorker)
//	line.Take(hooks.GradientOf(...), send) // a gradient is complete
//	err = line.Wait()
//	err = r.After(ctx, result)
//	stop := r.Stops()                      // if r.Votes(step), ask all workers
//	leave()
//	... after the last step:
//	err = r.End(ctx, steps)
//
// A nil Runner calls no functions.
//
// # What it refuses
//
// The package uses no network: the trainer sends the gradients after their
// hooks, and informs the other workers if a hook stops the training.
package hooks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/replica"
)

// ErrDone is returned by a hook to stop the training, and by a call of Step
// after the last step. It means that the training has ended normally.
var ErrDone = errors.New("training is done")

// Hook contains functions that the trainer calls at certain moments of a
// training. Each of them may be nil. Except for Gradient, the functions of all
// hooks run one after the other, in the order in which the hooks were passed.
//
// If a function returns an error or panics, the task fails with an error that
// names the hook, the step and the function. Begin, Before, After and
// Checkpoint may return ErrDone to stop the training, see Config.Hooks.
//
// A function may evaluate the model and read its variables, but must not call
// Step.
type Hook struct {
	Name      string // name of the hook in error messages; unique among the hooks of a job
	ChiefOnly bool   // if true, only the chief (worker 0) calls the functions; all workers must pass the hook nevertheless

	// EverySteps and Every select the steps in which Before, After and
	// Gradient are called. At most one of them may be set. With EverySteps the
	// functions are called in the steps 0, EverySteps, 2*EverySteps and so on;
	// 0 means in every step. With Every they are called in the worker's first
	// step. Later they are called in a step that begins at least this time
	// after the beginning of the last step in which they were called.
	EverySteps int
	Every      time.Duration

	// Begin is called once, before the worker's first step.
	Begin func(ctx context.Context) error
	// Before is called before each selected step; steps are counted from 0. If
	// Before returns ErrDone, all workers still take this step.
	Before func(ctx context.Context, step int) error
	// After is called after each selected step. With --sync backup:B it is
	// also called if the worker's gradients came too late for the step
	// (Result.Late).
	After func(ctx context.Context, r replica.Result) error
	// Checkpoint is called only on the chief (worker 0), after a checkpoint is
	// completely written. The call comes between two steps or after the last
	// one. steps is the number of steps that the checkpoint contains.
	Checkpoint func(ctx context.Context, steps int) error
	// End is called after the last step and the last checkpoint, unless the
	// program failed. steps is the number of steps whose updates the variables
	// contain.
	End func(ctx context.Context, steps int) error
	// Gradient is called for every variable and every virtual worker (part of
	// the batch) of this worker, as soon as that gradient is computed. It runs
	// before the gradient is added to others and sent, while the backward pass
	// continues. It may modify the values. The calls for one virtual worker
	// come one after the other, in the order of the backward pass. Calls for
	// different replicas of a worker may be concurrent.
	Gradient func(ctx context.Context, g Gradient) error
}

// Gradient is the gradient of one variable that one virtual worker has
// computed from its part of the global batch.
type Gradient struct {
	Variable      string  // name of the variable
	Step          int     // number of the step, counted from 0
	VirtualWorker int     // number of the virtual worker (part of the batch), counted from 0 over all workers
	Shape         []int   // shape of the variable; for an embedding: the number of entries in Rows, and the table's width
	Rows          []int64 // indices of the embedding's rows that the virtual worker has used, ascending; nil for other variables
	// Values is a []float32 or []float64 with the elements in row-major order.
	// The hook must not use it after it returns.
	Values any
}

// check returns an error if the hook's fields are invalid, for example if it
// has no function.
func (h *Hook) check() error {
	switch {
	case h.EverySteps < 0:
		return fmt.Errorf("hook %q: EverySteps is %d: want at least 0", h.Name, h.EverySteps)
	case h.Every < 0:
		return fmt.Errorf("hook %q: Every is %v: want at least 0", h.Name, h.Every)
	case h.EverySteps > 0 && h.Every > 0:
		return fmt.Errorf("hook %q has EverySteps and Every: set one of them", h.Name)
	case h.moments() == nil:
		return fmt.Errorf("hook %q has no function: set After or another one", h.Name)
	}
	return nil
}

// moments returns the names of the functions that the hook has, such as
// "begin" for Begin and "after" for After.
func (h *Hook) moments() (all []string) {
	for _, m := range []struct {
		name string
		set  bool
	}{
		{"begin", h.Begin != nil}, {"before", h.Before != nil}, {"after", h.After != nil},
		{"checkpoint", h.Checkpoint != nil}, {"end", h.End != nil}, {"gradient", h.Gradient != nil},
	} {
		if m.set {
			all = append(all, m.name)
		}
	}
	return all
}

// String describes the hook's name, functions and interval, which must be
// equal on all workers.
func (h *Hook) String() string {
	when := "every step"
	switch {
	case h.Every > 0:
		when = fmt.Sprintf("every %v", h.Every)
	case h.EverySteps > 1:
		when = fmt.Sprintf("every %d steps", h.EverySteps)
	}
	return fmt.Sprintf("%q (%s, %s)", h.Name, strings.Join(h.moments(), ", "), when)
}

// stops reports whether the hook has a function that may return ErrDone to
// stop the training.
func (h *Hook) stops() bool {
	return h.Begin != nil || h.Before != nil || h.After != nil || h.Checkpoint != nil
}
