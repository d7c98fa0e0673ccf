package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/plx-run/plx/trainer/owner"
)

// advance counts a step that was taken, or one that this worker came too late
// for, and runs what comes after each.
func (r *Replica) advance(ctx context.Context, result Result, outcome owner.Outcome, t timing) error {
	r.step = int(r.client.Step())
	r.job.steps.Store(int64(r.step))
	if r.job.begun != nil {
		r.job.first.Do(func() { close(r.job.begun) })
	}
	if outcome.Dropped > 0 {
		r.late++
		r.dropped += outcome.Dropped * r.rows
	}
	if outcome.Over {
		r.ended = true
		return ErrDone
	}
	if result.Late {
		return nil
	}
	if outcome.Leaves < r.job.leaves && r.settings.ending == EndTogether {
		r.ended = true // the next call says so
	}
	if err := r.together(ctx, t.end.Sub(t.begin)); err != nil {
		return err
	}
	return r.hooks.after(r, result, t)
}

// together does what all workers do together after every step that they took,
// those without data of their own too.
func (r *Replica) together(ctx context.Context, took time.Duration) error {
	if every := r.job.config.checkParameters; every > 0 && r.step%every == 0 {
		if err := r.checkParameters(ctx); err != nil {
			return err
		}
	}
	if err := r.tuner.after(ctx, r.step, took); err != nil {
		return err
	}
	return r.saver.after(ctx)
}

// named gives a step's metrics their names.
func (l *lane) named(metrics []float64) map[string]float64 {
	if len(l.metrics) == 0 {
		return nil
	}
	named := make(map[string]float64, len(l.metrics))
	for i, name := range l.metrics {
		named[name] = metrics[i]
	}
	return named
}

// join takes part in the steps of the others, with nothing of its own, until
// nobody has anything.
func (r *Replica) join(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settings.ending == WaitForAll || r.err != nil || r.declared.Sync.Mode == owner.Backup {
		return nil
	}
	r.job.Logf(slog.LevelDebug, "no more data after step %d: joining the others", r.step)
	if err := r.joinSteps(ctx); err != nil {
		r.err = fmt.Errorf("joined after step %d: %w", r.step, err)
		return r.err
	}
	return nil
}

func (r *Replica) joinSteps(ctx context.Context) error {
	if mode := r.declared.Sync.Mode; mode != "" && mode != owner.Synchronous {
		err := r.client.Join(ctx)
		r.step = int(r.client.Step()) - 1 // the last one had nobody's data
		r.job.steps.Store(int64(r.step))
		return err
	}
	var leaves []int
	for leaf := r.lo; leaf < r.hi; leaf++ {
		leaves = append(leaves, leaf)
	}
	for {
		begin := time.Now()
		if err := r.client.Begin(0, leaves...); err != nil {
			return err
		}
		outcome, err := r.client.Finish(ctx, nil)
		if err != nil || outcome.Leaves == 0 {
			return err // it was nobody's step
		}
		r.step = int(r.client.Step())
		r.job.steps.Store(int64(r.step))
		if err := r.together(ctx, time.Since(begin)); err != nil {
			return err
		}
	}
}

// finished reports whether err, what the program returned, is a success.
func finished(err error) bool { return err == nil || errors.Is(err, ErrDone) }
