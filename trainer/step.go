package trainer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"time"

	"github.com/plx-run/plx/trainer/exchange/client"
	"github.com/plx-run/plx/trainer/replica"
	"github.com/plx-run/plx/trainer/summary"
	"github.com/plx-run/plx/trainer/telemetry"
	"gorgonia.org/gorgonia"
)

// Step trains on this worker's rows of one batch, those of Rows: it computes
// the gradients, puts them together with those of all other workers, and
// returns once the variables are updated. In synchronous training every
// worker must call it equally often, see AtEndOfData.
//
// Step refuses a feed that does not fit, and nothing changes. ErrDone means that
// the training has ended as it should. After any other error, also when ctx
// ends, the replica can no longer be used: the variables of the workers may
// differ.
func (r *Replica) Step(ctx context.Context, feed Feed) (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return Result{}, r.err
	}
	if stop := r.job.config.StopAt; r.ended || stop > 0 && r.step >= stop {
		return Result{}, ErrDone
	}
	if err := r.worker.checkStep(feed); err != nil {
		return Result{}, fmt.Errorf("step %d: %w", r.step, err)
	}
	result, err := r.train(ctx, feed)
	if err != nil && !errors.Is(err, ErrDone) {
		r.err = fmt.Errorf("step %d: %w", r.step, err)
		return Result{}, r.err
	}
	return result, err
}

// train takes one step.
func (r *Replica) train(ctx context.Context, feed Feed) (Result, error) {
	r.telemetry.Before(r.step)
	r.saving.before()
	t := telemetry.Timing{Begin: time.Now()}
	rate := r.training.optimizer.rate(r.step)
	if !(rate >= 0) || math.IsInf(rate, 0) {
		return Result{}, fmt.Errorf("learning rate %v: want a number of at least 0", rate)
	}
	if err := r.catchUp(ctx); err != nil {
		return Result{}, err
	}
	if err := r.worker.pull(ctx, feed); err != nil {
		return Result{}, err
	}
	t.Pulled = time.Now()
	if err := r.client.Begin(rate); err != nil {
		return Result{}, err
	}
	if err := r.worker.requestNext(r.step); err != nil {
		return Result{}, err
	}
	fetches := map[string][]gorgonia.Value{}
	sums, err := r.worker.compute(ctx, r.step, feed, fetches)
	if err != nil {
		return Result{}, err
	}
	t.Computed = time.Now()
	outcome, err := r.finish(ctx, sums)
	if err != nil {
		return Result{}, err
	}
	t.End = time.Now()
	result := r.result(outcome)
	result.Rate, result.Fetches = rate, fetches
	if !result.Late && !replica.Finite(result.Loss) {
		return Result{}, replica.NotFiniteError(fmt.Sprintf("the loss of the whole batch is %v", result.Loss))
	}
	return result, r.advance(ctx, result, outcome, t)
}

// catchUp waits, before the first step, for workers that may not fall further
// behind.
func (r *Replica) catchUp(ctx context.Context) error {
	if r.step != r.from {
		return nil
	}
	defer r.job.log.waiting(func() string { return "workers that are behind" })()
	return r.client.Resume(ctx)
}

// finish waits until the variables are updated.
func (r *Replica) finish(ctx context.Context, sums [][]float64) (client.Outcome, error) {
	defer r.job.log.waiting(func() string { return fmt.Sprintf("step %d is computed here", r.step) })()
	outcome, err := r.client.Finish(ctx, sums)
	if err == nil && outcome.Saved {
		r.saving.carriage.saveBefore(r.step)
	}
	return outcome, err
}

// result is what the program gets to know of a step.
func (r *Replica) result(outcome client.Outcome) Result {
	result := Result{Step: r.step, Loss: outcome.Loss, Norm: outcome.Norm, Late: outcome.Late}
	if !r.training.declared.Norms() {
		result.Norm = math.NaN()
	}
	result.Metrics = r.training.group.First().Named(outcome.Metrics)
	return result
}

// advance counts a step that was taken, or one that this worker came too late
// for, and runs what comes after each.
func (r *Replica) advance(ctx context.Context, result Result, outcome client.Outcome, t telemetry.Timing) error {
	r.step = int(r.client.Step())
	r.job.progress.took(r.step)
	if outcome.Dropped > 0 {
		r.late++
		r.dropped += outcome.Dropped * r.training.rows
	}
	if outcome.Over {
		r.ended = true
		return ErrDone
	}
	if result.Late {
		return nil
	}
	if outcome.VirtualWorkers < r.job.virtual && r.training.settings.ending == EndTogether {
		r.ended = true // the next call returns ErrDone
	}
	if err := r.together(ctx, t.End.Sub(t.Begin)); err != nil {
		return err
	}
	return r.telemetry.After(summary.Scalars{
		Step: uint64(r.step - 1), Loss: result.Loss, LearningRate: result.Rate, GradientNorm: result.Norm, Metrics: result.Metrics,
	}, r.training.settings.batch, t)
}

// together does what all workers do after every step that they took, those
// without data of their own too.
func (r *Replica) together(ctx context.Context, took time.Duration) error {
	if every := r.job.config.CheckParameters; every > 0 && r.step%every == 0 {
		if err := r.variables.compare(ctx, r.job.network.group, r.step); err != nil {
			return err
		}
	}
	moved, err := r.worker.tuner.After(ctx, r.step, took)
	if err != nil {
		return err
	}
	if moved != nil {
		r.training.moved(moved)
	}
	return r.saving.saver.After(ctx, r.step)
}

// join takes part in the steps of the others, with nothing of its own, until
// nobody has anything.
func (r *Replica) join(ctx context.Context) error {
	if r.training.settings.ending == WaitForAll || r.err != nil || r.training.declared.Sync.Competes() {
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
	if !r.training.declared.Sync.InStep() {
		err := r.client.Join(ctx)
		r.step = int(r.client.Step()) - 1 // the last one had nobody's data
		r.job.progress.steps.Store(int64(r.step))
		return err
	}
	var absent []int
	for vw := r.training.own.Lo; vw < r.training.own.Hi; vw++ {
		absent = append(absent, vw)
	}
	for {
		begin := time.Now()
		if err := r.client.Begin(0, absent...); err != nil {
			return err
		}
		outcome, err := r.client.Finish(ctx, nil)
		if err != nil || outcome.VirtualWorkers == 0 {
			return err // it was nobody's step
		}
		r.step = int(r.client.Step())
		r.job.progress.steps.Store(int64(r.step))
		if err := r.together(ctx, time.Since(begin)); err != nil {
			return err
		}
	}
}

// Train takes steps until there were so many and gives the result of each:
//
//	for result, err := range replica.Train(ctx, 1000, feed) {
//		if err != nil {
//			return err
//		}
//		...
//	}
//
// feed makes what this worker feeds to a step, its rows of that batch. It is
// asked for the next step's before a step is taken, which goes to Prefetch. So
// the two must not share memory, but for values that are known only when the
// body of the loop has the step's result: what it writes to them, and they are
// no lookup's indices, is what the next step is fed.
//
// The sequence ends after the first error, feed's or Step's, ErrDone among
// them; an error of feed is given in its step's place. A loop that was left can
// be taken up again with another.
func (r *Replica) Train(ctx context.Context, steps int, feed func(step int) (Feed, error)) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		var (
			next    Feed
			without error // why there is none
			made    = -1  // the step that it is for
		)
		for step := r.Steps(); step < steps; step = r.Steps() {
			result, present, err := Result{}, next, without
			if made != step { // the first one, or this worker came too late
				present, err = feed(step)
			}
			if err == nil && step+1 < steps {
				made = step + 1
				if next, without = feed(made); without == nil {
					without = r.Prefetch(next)
				}
			}
			if err == nil {
				result, err = r.Step(ctx, present)
			}
			if !yield(result, err) || err != nil {
				return
			}
		}
	}
}

// Prefetch announces the feed of a step to come, so that the rows of embeddings
// for it travel while the step before it is computed. Only indices of lookups
// count:
//
//	for ... {
//		err := replica.Prefetch(next)
//		result, err := replica.Step(ctx, feed)
//		feed, next = next, ...
//	}
//
// Shard holders send rows that the step changes once more, so results are the same
// bits with Prefetch and without. They are also the same if the step gets another
// feed; then the time is not saved. Prefetch returns at once. The next Step sends
// the request, unless it is the step that gets this feed.
//
// It does nothing without embeddings, with --prefetch=false, and with a --sync
// other than sync, because it is unknown there which step is next.
func (r *Replica) Prefetch(feed Feed) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.job.config.Prefetch || r.err != nil || r.ended {
		return nil
	}
	if err := r.worker.tables.Prefetch(feed); err != nil {
		return fmt.Errorf("prefetch: %w", err)
	}
	return nil
}
