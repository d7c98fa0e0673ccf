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

// Step takes one training step with this worker's rows of a global batch (see
// Rows). It computes the gradients, combines them with those of the other
// workers, and returns after the variables were updated. In synchronous
// training every worker must call Step the same number of times, unless
// Config.AtEndOfData says otherwise.
//
// If the feed does not fit the model, Step returns an error and changes
// nothing. ErrDone means that training has ended normally. After any other
// error, and if ctx ends, the session cannot be used any more, because the
// workers' variables may differ.
func (s *Session) Step(ctx context.Context, feed Feed) (Result, error) {
	if s.training.hooks != nil {
		return s.stepWithHooks(ctx, feed)
	}
	return s.take(ctx, feed)
}

// completeFeed returns the feed with the recurrent state (Model.Carried)
// added. It returns an error if the next step cannot be taken, for example
// because training has ended or the feed does not fit. The caller holds s.mu.
func (s *Session) completeFeed(feed Feed) (Feed, error) {
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

// take locks the session and takes one training step, without calling hooks.
func (s *Session) take(ctx context.Context, feed Feed) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	feed, err := s.completeFeed(feed)
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

// train takes one training step and returns the result. The caller holds s.mu.
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

// saveDue makes a checkpoint if one is due. It runs right before the next
// step, so that the checkpoint contains what the program noted after the step
// before (see Session.Note).
func (s *Session) saveDue(ctx context.Context) error {
	if !s.unsaved {
		return nil
	}
	s.unsaved = false
	return s.saving.saver.After(ctx, s.step)
}

// catchUp blocks before the first step of a resumed worker until slower
// workers are within the staleness bound of --sync.
func (s *Session) catchUp(ctx context.Context) error {
	if s.step != s.from {
		return nil
	}
	defer s.job.log.waiting(func() string { return "workers that are behind" })()
	return s.client.Resume(ctx)
}

// finish sends this worker's losses and metrics, and blocks until the
// variables are updated.
func (s *Session) finish(ctx context.Context, sums [][]float64) (client.Outcome, error) {
	defer s.job.log.waiting(func() string { return fmt.Sprintf("step %d is computed here", s.step) })()
	outcome, err := s.client.Finish(ctx, sums)
	if err == nil && outcome.Saved {
		s.saving.carriage.SaveBefore(s.step)
	}
	return outcome, err
}

// advance updates the step counters and runs the work due after a step. If
// this worker came too late for the step (--sync backup:B), it only counts the
// step.
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
		s.ended = true // the next call of Step returns ErrDone
	}
	if err := s.afterSharedStep(ctx, t.End.Sub(t.Begin)); err != nil {
		return err
	}
	return s.telemetry.After(summary.Scalars{
		Step: uint64(s.step - 1), Loss: result.Loss, LearningRate: result.Rate, GradientNorm: result.Norm, Metrics: result.Metrics,
	}, s.training.config.GlobalBatch, t, s.variables.histograms)
}

// afterSharedStep does the work after a step that all workers must do together: it
// compares variables and runs the autotuner. Workers that have run out of data
// must call it too.
func (s *Session) afterSharedStep(ctx context.Context, took time.Duration) error {
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

// join makes a worker that has run out of data take part in the steps of the
// other workers, until no worker has data. With WaitForAll it does nothing.
func (s *Session) join(ctx context.Context) error {
	if s.training.config.AtEndOfData == WaitForAll || s.err != nil || s.training.declared.Sync.WorkersCompete() {
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
		s.step = int(s.client.Step()) - 1 // Step also counts the final step, for which no worker had data
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
			return err // no worker had data for this step, so training has ended
		}
		s.step = int(s.client.Step())
		s.job.progress.steps.Store(int64(s.step))
		if err := s.afterSharedStep(ctx, time.Since(begin)); err != nil {
			return err
		}
		if s.training.hooks.Votes(s.step - 1) { // all workers vote on whether to stop; this worker has no hook that asks for it
			if _, err := s.job.Any(ctx, false); err != nil {
				return err
			}
		}
	}
}

// Train takes training steps until the training has had the given number of
// steps, including those before a restart. It yields the result of each step:
//
//	for result, err := range session.Train(ctx, 1000, feed) {
//		if err != nil {
//			return err
//		}
//		...
//	}
//
// The function feed returns this worker's rows for a step. Train calls it for
// the next step before it takes the current one, and passes the result to
// Prefetch. So the feeds of two consecutive steps must not share memory. feed
// need not contain recurrent state, see Model.Carried.
//
// If training ends earlier (ErrDone), the sequence ends without an error, and
// the code after the loop runs. The sequence also ends after the first error
// of feed or Step, which it yields. After a break, the program may call Train
// again to continue.
func (s *Session) Train(ctx context.Context, steps int, feed func(step int) (Feed, error)) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		var (
			next    Feed
			without error // error of the function feed, or of Prefetch, for the step with the number in made
			made    = -1  // number of the step for which the feed in next was made; -1 means none
		)
		for step := s.Steps(); step < steps; step = s.Steps() {
			result, present, err := Result{}, next, without
			if made != step { // the feed in next is for another step: in the first iteration, and after this worker missed a step
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

// Prefetch announces the feed of the next step, so that the embedding rows for
// it can be fetched while the current step is computed. It uses only the
// indices of lookups:
//
//	for ... {
//		err := session.Prefetch(next)
//		result, err := session.Step(ctx, feed)
//		feed, next = next, ...
//	}
//
// Prefetch returns at once; the next call of Step sends the request. If the
// current step changes a requested row, its shard holder sends the row again.
// So the results have the same bits as without Prefetch. If the next step gets
// another feed, the prefetched rows are not used.
//
// Prefetch does nothing if the model has no embeddings, with --prefetch=false,
// or if --sync is not sync. In the other modes the number of the next step is
// not known in advance.
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
