package trainer

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer/hooks"
)

// Hook is a set of functions that the trainer calls at certain moments of a
// training. Each function may be nil. See [hooks.Hook] for details of the
// fields.
//
//   - Name string: names the hook in error messages; must be unique in the job
//   - ChiefOnly bool: only the chief (worker 0) calls the functions; still, every worker must list the hook
//   - EverySteps int: call Before, After and Gradient only in steps 0, EverySteps, 2*EverySteps
//     and so on; 0: in every step
//   - Every time.Duration: call Before, After and Gradient in the first step, and then at most
//     once in this time; do not set both EverySteps and Every
//   - Begin func(context.Context) error: called before the worker's first step
//   - Before func(context.Context, int) error: called before a step, with the number of the step
//   - After func(context.Context, Result) error: called after a step
//   - Checkpoint func(context.Context, int) error: called on the chief after a checkpoint was
//     written, with the number of steps in the checkpoint
//   - End func(context.Context, int) error: called after the last step and checkpoint of a program
//     that ended without an error, with the number of steps
//   - Gradient func(context.Context, Gradient) error: called for each variable and virtual worker
//     of this worker, after the gradient was computed and before it is sent; may change the values
//
// Begin, Before, After and Checkpoint may return [ErrDone] to stop the
// training. Any other error ends the task.
type Hook = hooks.Hook

// Gradient is the gradient of one variable, which one virtual worker has
// computed from its part of the batch. The trainer passes it to Hook.Gradient.
//
//   - Variable string: name of the variable
//   - Step int: number of the step, counted from 0
//   - VirtualWorker int: number of the virtual worker, counted over all workers of the job
//   - Shape []int: shape of the variable; for an embedding, the length of Rows and the table's width
//   - Rows []int64: for an embedding, the table's rows that the step used, ascending; otherwise nil
//   - Values any: elements in row-major order, a []float32 or []float64; valid until the hook returns
type Gradient = hooks.Gradient

// stepWithHooks takes one training step and calls the program's hooks before
// and after it. It does not hold s.mu while a hook runs, because a hook may
// call Evaluate, which locks s.mu.
func (s *Session) stepWithHooks(ctx context.Context, feed Feed) (result Result, err error) {
	leave, err := s.training.hooks.Enter(ctx)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	step, err := s.checkNextStep(feed)
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

// checkNextStep returns an error if the next step cannot be taken, for example
// because training has ended. stepWithHooks calls it before it calls any hook
// for the step.
func (s *Session) checkNextStep(feed Feed) (step int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.completeFeed(feed)
	return s.step, err
}

// after calls the hooks that run after a step. It ends the training if a hook
// asks for that. In synchronous training, all workers then stop after the same
// step, whichever worker's hook asks.
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

// saved calls Hook.Checkpoint for each checkpoint that was completely written
// since the last call of saved.
func (s *Session) saved(ctx context.Context) error {
	for _, steps := range s.saving.saver.Completed() {
		if err := s.training.hooks.AfterSave(ctx, steps); err != nil {
			return err
		}
	}
	return nil
}

// end calls Hook.End if no step of the session has failed.
func (s *Session) end(ctx context.Context) error {
	if err := s.failure(); err != nil || s.training.hooks == nil {
		return nil
	}
	if err := s.saved(ctx); err != nil {
		return err
	}
	return s.training.hooks.End(ctx, s.Steps())
}
