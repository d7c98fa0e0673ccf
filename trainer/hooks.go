package trainer

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer/hooks"
)

// Hook holds functions of the program that are called at moments of a training. Each
// function may be nil. [hooks.Hook] says more of each field.
//
//   - Name string: names the hook in errors; each hook of a job has another name
//   - ChiefOnly bool: only the chief calls the functions; every worker gives the hook nevertheless
//   - EverySteps int: call Before, After and Gradient in steps 0, EverySteps, 2*EverySteps and
//     so on; 0: in every step
//   - Every time.Duration: call them in the first step, and again once so long has passed; at
//     most one of EverySteps and Every is set
//   - Begin func(context.Context) error: before the worker's first step
//   - Before func(context.Context, int) error: before a step, whose number it gets
//   - After func(context.Context, Result) error: after a step
//   - Checkpoint func(context.Context, int) error: on the chief, when a checkpoint is written;
//     it gets the number of steps in it
//   - End func(context.Context, int) error: after the last step and checkpoint of a program
//     that ended well; it gets the number of steps
//   - Gradient func(context.Context, Gradient) error: for each variable and virtual worker of
//     this worker, when the gradient is complete and before it is sent; it may change the values
//
// Begin, Before, After and Checkpoint may return [ErrDone] to stop the training. Another error
// ends the task.
type Hook = hooks.Hook

// Gradient is what a hook sees of the gradient of one variable, as one virtual worker has
// computed it from its part of the batch.
//
//   - Variable string: name of the variable
//   - Step int: number of the step, counted from 0
//   - VirtualWorker int: number of the virtual worker, counted over all workers
//   - Shape []int: of the variable; of an embedding: number of rows in Rows, width
//   - Rows []int64: rows of an embedding that were used, ascending; nil for other variables
//   - Values any: elements in row-major order, a []float32 or []float64, until the hook returns
type Gradient = hooks.Gradient

// hooked takes a step with the program's hooks around it. They run without the session's
// lock, so that they can evaluate.
func (s *Session) hooked(ctx context.Context, feed Feed) (result Result, err error) {
	leave, err := s.training.hooks.Enter(ctx)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	step, err := s.admit(feed)
	if err != nil {
		return Result{}, err
	}
	if err = s.training.hooks.Before(ctx, step); err == nil {
		if result, err = s.take(ctx, feed); err != nil {
			return result, err
		}
		err = s.after(ctx, result)
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = fmt.Errorf("step %d: %w", step, err)
		return Result{}, s.err
	}
	return result, nil
}

// admit refuses a step that cannot be taken, before a hook sees it.
func (s *Session) admit(feed Feed) (step int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.admits(feed)
	return s.step, err
}

// after calls the hooks that come after a step, and ends the training if one stops it: a
// hook of any worker, if all workers take the step together.
func (s *Session) after(ctx context.Context, result Result) error {
	h := s.training.hooks
	if err := h.After(ctx, result); err != nil {
		return err
	}
	if err := s.saved(ctx); err != nil {
		return err
	}
	stop := h.Stops()
	if s.training.declared.Sync.InStep() {
		if !h.Votes(result.Step) {
			return nil
		}
		any, err := s.job.Any(ctx, stop)
		if err != nil {
			return fmt.Errorf("tell the other workers whether a hook stops: %w", err)
		}
		stop = any
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = s.ended || stop
	return nil
}

// saved calls the hooks for the checkpoints that were completed since it was last called.
func (s *Session) saved(ctx context.Context) error {
	for _, steps := range s.saving.saver.Completed() {
		if err := s.training.hooks.Saved(ctx, steps); err != nil {
			return err
		}
	}
	return nil
}

// end calls the hooks of a program that has ended well.
func (s *Session) end(ctx context.Context) error {
	if err := s.failure(); err != nil || s.training.hooks == nil {
		return nil
	}
	if err := s.saved(ctx); err != nil {
		return err
	}
	return s.training.hooks.End(ctx, s.Steps())
}
