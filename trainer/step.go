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
// worker must call it equally often, see Config.AtEndOfData.
//
// Step refuses a feed that does not fit, and nothing changes. ErrDone means that
// the training has ended as it should. After any other error, also when ctx
// ends, the session can no longer be used: the variables of the workers may
// differ.
func (s *Session) Step(ctx context.Context, feed Feed) (Result, error) {
	if s.training.hooks != nil {
		return s.hooked(ctx, feed)
	}
	return s.take(ctx, feed)
}

// admits refuses a step that cannot be taken. It returns the feed with what the model
// carries into the step.
func (s *Session) admits(feed Feed) (Feed, error) {
	if s.err != nil {
		return nil, s.err
	}
	if stop := s.training.config.StopAtStep; s.ended || stop > 0 && s.step >= stop {
		return nil, ErrDone
	}
	feed = s.worker.carriage.Complete(feed, 0)
	if err := s.worker.check(s.worker.group.First(), feed, s.worker.own.Len()); err != nil {
		return nil, fmt.Errorf("step %d: %w", s.step, err)
	}
	return feed, nil
}

// take takes a step without hooks.
func (s *Session) take(ctx context.Context, feed Feed) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	feed, err := s.admits(feed)
	if err != nil {
		return Result{}, err
	}
	result, err := s.train(ctx, feed)
	if err != nil && !errors.Is(err, ErrDone) {
		s.err = fmt.Errorf("step %d: %w", s.step, err)
		return Result{}, s.err
	}
	return result, err
}

// train takes one step.
func (s *Session) train(ctx context.Context, feed Feed) (Result, error) {
	if err := s.saveDue(ctx); err != nil {
		return Result{}, err
	}
	s.telemetry.Before(s.step)
	s.saving.before()
	t := telemetry.Timing{Begin: time.Now()}
	rate := s.training.optimizer.rate(s.step)
	if !(rate >= 0) || math.IsInf(rate, 0) {
		return Result{}, fmt.Errorf("learning rate %v: want a number of at least 0", rate)
	}
	if err := s.catchUp(ctx); err != nil {
		return Result{}, err
	}
	if err := s.worker.pull(ctx, feed); err != nil {
		return Result{}, err
	}
	t.Pulled = time.Now()
	if err := s.client.Begin(rate); err != nil {
		return Result{}, err
	}
	if err := s.worker.requestNext(s.step); err != nil {
		return Result{}, err
	}
	fetches := map[string][]gorgonia.Value{}
	sums, err := s.worker.compute(ctx, s.step, rate, feed, fetches)
	if err != nil {
		return Result{}, err
	}
	t.Computed = time.Now()
	outcome, err := s.finish(ctx, sums)
	if err != nil {
		return Result{}, err
	}
	t.End = time.Now()
	result := Result{
		Step: s.step, Loss: outcome.Loss, Norm: outcome.Norm, Late: outcome.Late, Rate: rate, Fetches: fetches,
		Metrics: s.training.group.First().Named(outcome.Metrics),
	}
	if !s.training.declared.Norms() {
		result.Norm = math.NaN()
	}
	if !result.Late && !replica.Finite(result.Loss) {
		return Result{}, replica.NotFiniteError(fmt.Sprintf("the loss of the whole batch is %v", result.Loss))
	}
	return result, s.advance(ctx, result, outcome, t)
}

// saveDue makes the checkpoint that is due after the steps so far. It is made right before the
// next step, so that it has what the program learned in between, see [Session.Note].
func (s *Session) saveDue(ctx context.Context) error {
	if !s.unsaved {
		return nil
	}
	s.unsaved = false
	return s.saving.saver.After(ctx, s.step)
}

// catchUp waits, before the first step, for workers that may not fall further
// behind.
func (s *Session) catchUp(ctx context.Context) error {
	if s.step != s.from {
		return nil
	}
	defer s.job.log.waiting(func() string { return "workers that are behind" })()
	return s.client.Resume(ctx)
}

// finish waits until the variables are updated.
func (s *Session) finish(ctx context.Context, sums [][]float64) (client.Outcome, error) {
	defer s.job.log.waiting(func() string { return fmt.Sprintf("step %d is computed here", s.step) })()
	outcome, err := s.client.Finish(ctx, sums)
	if err == nil && outcome.Saved {
		s.saving.carriage.SaveBefore(s.step)
	}
	return outcome, err
}

// advance counts a step that was taken, or one that this worker came too late
// for, and runs what comes after each.
func (s *Session) advance(ctx context.Context, result Result, outcome client.Outcome, t telemetry.Timing) error {
	s.step = int(s.client.Step())
	if !result.Late {
		loss := result.Loss
		s.job.progress.loss.Store(&loss)
	}
	s.job.progress.took(s.step)
	if outcome.Dropped > 0 {
		s.late++
		s.dropped += outcome.Dropped * s.training.rows
	}
	if outcome.Over {
		s.ended = true
		return ErrDone
	}
	if result.Late {
		return nil
	}
	if outcome.VirtualWorkers < s.job.virtual && s.training.config.AtEndOfData == EndTogether {
		s.ended = true // the next call returns ErrDone
	}
	if err := s.together(ctx, t.End.Sub(t.Begin)); err != nil {
		return err
	}
	return s.telemetry.After(summary.Scalars{
		Step: uint64(s.step - 1), Loss: result.Loss, LearningRate: result.Rate, GradientNorm: result.Norm, Metrics: result.Metrics,
	}, s.training.config.GlobalBatch, t, s.variables.histograms)
}

// together does what all workers do after every step that they took, those
// without data of their own too.
func (s *Session) together(ctx context.Context, took time.Duration) error {
	if every := s.training.config.CheckParameters; every > 0 && s.step%every == 0 {
		if err := s.variables.compare(ctx, s.job.network.group, s.step); err != nil {
			return err
		}
	}
	moved, err := s.worker.tuner.After(ctx, s.step, took)
	if err != nil {
		return err
	}
	if moved != nil {
		s.training.declared.Pieces = moved
	}
	s.unsaved = true
	return nil
}

// join takes part in the steps of the others, with nothing of its own, until
// nobody has anything.
func (s *Session) join(ctx context.Context) error {
	if s.training.config.AtEndOfData == WaitForAll || s.err != nil || s.training.declared.Sync.Competes() {
		return nil
	}
	s.job.Logf(slog.LevelDebug, "no more data after step %d: joining the others", s.step)
	if err := s.joinSteps(ctx); err != nil {
		s.err = fmt.Errorf("joined after step %d: %w", s.step, err)
		return s.err
	}
	return nil
}

func (s *Session) joinSteps(ctx context.Context) error {
	if !s.training.declared.Sync.InStep() {
		err := s.client.Join(ctx)
		s.step = int(s.client.Step()) - 1 // the last one had nobody's data
		s.job.progress.steps.Store(int64(s.step))
		return err
	}
	var absent []int
	for vw := s.training.own.Lo; vw < s.training.own.Hi; vw++ {
		absent = append(absent, vw)
	}
	for {
		if err := s.saveDue(ctx); err != nil {
			return err
		}
		begin := time.Now()
		if err := s.client.Begin(0, absent...); err != nil {
			return err
		}
		outcome, err := s.client.Finish(ctx, nil)
		if err != nil || outcome.VirtualWorkers == 0 {
			return err // it was nobody's step
		}
		s.step = int(s.client.Step())
		s.job.progress.steps.Store(int64(s.step))
		if err := s.together(ctx, time.Since(begin)); err != nil {
			return err
		}
		if s.training.hooks.Votes(s.step - 1) { // all end with the next step, which is nobody's
			if _, err := s.job.Any(ctx, false); err != nil {
				return err
			}
		}
	}
}

// Train takes steps until there were so many and gives the result of each:
//
//	for result, err := range session.Train(ctx, 1000, feed) {
//		if err != nil {
//			return err
//		}
//		...
//	}
//
// feed makes what this worker feeds to a step, its rows of that batch. It is
// asked for the next step's before a step is taken, which goes to Prefetch. So
// the two must not share memory; the feed after them may use that of the first
// again. What a step leaves to the next is not fed, see Model.Carried.
//
// The sequence ends without an error if the training is done before, see ErrDone: what
// stands after the loop runs in any case. It ends after the first error, feed's or
// Step's; an error of feed is given in its step's place. A loop that was left can be
// taken up again with another.
func (s *Session) Train(ctx context.Context, steps int, feed func(step int) (Feed, error)) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		var (
			next    Feed
			without error // why there is none
			made    = -1  // the step that it is for
		)
		for step := s.Steps(); step < steps; step = s.Steps() {
			result, present, err := Result{}, next, without
			if made != step { // the first one, or this worker came too late
				present, err = feed(step)
			}
			if err == nil && step+1 < steps {
				made = step + 1
				if next, without = feed(made); without == nil {
					without = s.Prefetch(next)
				}
			}
			if err == nil {
				result, err = s.Step(ctx, present)
			}
			if errors.Is(err, ErrDone) || !yield(result, err) || err != nil {
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
//		err := session.Prefetch(next)
//		result, err := session.Step(ctx, feed)
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
func (s *Session) Prefetch(feed Feed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.training.config.NoPrefetch || s.err != nil || s.ended {
		return nil
	}
	if err := s.worker.tables.Prefetch(feed); err != nil {
		return fmt.Errorf("prefetch: %w", err)
	}
	return nil
}
