// Package hooks calls functions of the program at moments of a training, and lets them
// stop it.
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
// A nil Runner calls nothing.
//
// # What it refuses
//
// It sends nothing: the trainer sends gradients after their hooks, and tells the other
// workers of a stop.
package hooks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/replica"
)

// ErrDone means that the training has ended as it should. A hook returns it to stop the
// training.
var ErrDone = errors.New("training is done")

// Hook holds functions that the trainer calls at moments of a training. Each of them may
// be nil. The functions of all hooks run one after the other, in the order in which the
// hooks were given, but for Gradient.
//
// A function that returns an error or panics ends the task, with an error that names
// hook, step and moment. Begin, Before, After and Checkpoint may return ErrDone to stop
// the training, see Config.Hooks.
//
// Functions may evaluate the model and read its variables. They must not take a step.
type Hook struct {
	Name      string // names the hook in errors; each hook of a job has another name
	ChiefOnly bool   // only the chief calls the functions; every worker gives the hook nevertheless

	// Before, After and Gradient are called in the steps 0, EverySteps, 2*EverySteps
	// and so on; 0 means in every step. If Every is set, they are called in the
	// worker's first step, and then in the first step that begins at least that long
	// after the last one. At most one of the two is set.
	EverySteps int
	Every      time.Duration

	// Begin is called before the worker's first step.
	Begin func(ctx context.Context) error
	// Before is called before a step, counted from 0. All workers take the step
	// nevertheless if it returns ErrDone.
	Before func(ctx context.Context, step int) error
	// After is called after a step. With --sync backup:B it is also called if the
	// worker came too late (Result.Late).
	After func(ctx context.Context, r replica.Result) error
	// Checkpoint is called on the chief, which makes the checkpoints: between two
	// steps, or after the last one, when all of a checkpoint is written. steps is the
	// number of steps in it.
	Checkpoint func(ctx context.Context, steps int) error
	// End is called after the last step, and after the last checkpoint, of a program
	// that ended well. steps is the number of steps that the variables have seen.
	End func(ctx context.Context, steps int) error
	// Gradient is called for every variable and every virtual worker of this worker
	// when that gradient is complete, before it is added to others and sent. The
	// backward pass goes on meanwhile. Calls for one virtual worker come one after the
	// other, in the order of the backward pass; different replicas of a worker call
	// at the same time. Gradient may change the values.
	Gradient func(ctx context.Context, g Gradient) error
}

// Gradient is the gradient of one variable that one virtual worker has computed from its
// part of the batch.
type Gradient struct {
	Variable      string  // name of the variable
	Step          int     // number of the step, counted from 0
	VirtualWorker int     // number of the virtual worker, counted over all workers
	Shape         []int   // of the variable; of an embedding: number of rows in Rows, width
	Rows          []int64 // rows of an embedding that the virtual worker has used, ascending; nil for other variables
	// Values are the elements in row-major order, a []float32 or []float64. They belong
	// to the trainer again when the hook returns.
	Values any
}

// check refuses a hook that cannot be meant.
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

// moments names the moments for which the hook has a function.
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

// String describes what all workers must have in common of a hook.
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

// stops reports whether the hook has a function that may stop the training.
func (h *Hook) stops() bool {
	return h.Begin != nil || h.Before != nil || h.After != nil || h.Checkpoint != nil
}
