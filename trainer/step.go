package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/executor"
	"gorgonia.org/gorgonia"
)

// Step trains on this worker's rows of one batch, those of Rows: it computes
// the gradients, puts them together with those of all other workers, and
// returns once the variables are updated. In synchronous training every
// worker must call it equally often, see AtEndOfData.
//
// A feed that does not fit is refused and changes nothing. ErrDone says that
// the training has ended as it should. After any other error, also when ctx
// ends, the replica can no longer be used: the variables of the workers may
// differ.
func (r *Replica) Step(ctx context.Context, feed Feed) (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return Result{}, err
	}
	if stop := r.job.config.stopAt; r.ended || stop > 0 && r.step >= stop {
		return Result{}, ErrDone
	}
	if err := r.lanes[0].check(feed, r.hi-r.lo); err != nil {
		return Result{}, fmt.Errorf("step %d: %w", r.step, err)
	}
	result, err := r.train(ctx, feed)
	if err != nil && !errors.Is(err, ErrDone) {
		r.err = fmt.Errorf("step %d: %w", r.step, err)
		return Result{}, r.err
	}
	return result, err
}

func (r *Replica) train(ctx context.Context, feed Feed) (Result, error) {
	r.hooks.before(r.step)
	r.began()
	r.keepCarried()
	t := timing{begin: time.Now()}
	rate := r.optimizer.rate(r.step)
	if !(rate >= 0) || math.IsInf(rate, 0) {
		return Result{}, fmt.Errorf("learning rate %v: want a number of at least 0", rate)
	}
	if err := r.resume(ctx); err != nil {
		return Result{}, err
	}
	if err := r.fetch(ctx, feed); err != nil {
		return Result{}, err
	}
	t.pulled = time.Now()
	r.tuner.pulled(r.tables)
	if err := r.client.Begin(rate); err != nil {
		return Result{}, err
	}
	if err := r.wantNext(); err != nil {
		return Result{}, err
	}
	result := Result{Rate: rate, Fetches: map[string][]gorgonia.Value{}}
	sums, err := r.compute(ctx, feed, result.Fetches)
	if err != nil {
		return Result{}, err
	}
	t.computed = time.Now()
	stop := r.job.waiting(func() string { return fmt.Sprintf("step %d is computed here", r.step) })
	outcome, err := r.client.Finish(ctx, sums)
	stop()
	if err != nil {
		return Result{}, err
	}
	t.end = time.Now()
	if outcome.Saved {
		r.saveCarried(r.step, func(c carried) []byte { return c.before })
	}
	t.communicated = r.hooks.communicated(t.end)
	result.Step, result.Loss, result.Norm, result.Late = r.step, outcome.Loss, outcome.Norm, outcome.Late
	if !r.declared.Norm && r.declared.Clip == 0 {
		result.Norm = math.NaN()
	}
	result.Metrics = r.lanes[0].named(outcome.Metrics)
	if err := r.finite(result); err != nil {
		return Result{}, err
	}
	return result, r.advance(ctx, result, outcome, t)
}

// resume waits, before the first step, for workers that may not fall further
// behind.
func (r *Replica) resume(ctx context.Context) error {
	if r.step != r.standing.from {
		return nil
	}
	defer r.job.waiting(func() string { return "workers that are behind" })()
	return r.client.Resume(ctx)
}

// timing says when the parts of a step ended.
type timing struct {
	begin, pulled, computed, end time.Time
	communicated                 time.Duration
}

// call tells operations what is computed.
func (r *Replica) call(leaf int, train bool) executor.Call {
	return executor.Call{
		Step: uint64(r.step), Leaf: leaf, Leaves: r.job.leaves, Seed: r.job.config.seed, Train: train,
	}
}

// compute runs all virtual workers of this worker, the lanes side by side. It
// returns loss and metrics of each.
func (r *Replica) compute(ctx context.Context, feed Feed, fetches map[string][]gorgonia.Value) ([][]float64, error) {
	var (
		next    atomic.Int64
		running sync.WaitGroup
		sums    = make([][]float64, r.hi-r.lo)
		fetched = make([]map[string][]gorgonia.Value, r.hi-r.lo)
		errs    = make([]error, len(r.lanes))
	)
	for i, l := range r.lanes {
		running.Go(func() {
			for errs[i] == nil {
				shard := int(next.Add(1)) - 1
				if shard >= len(sums) {
					return
				}
				fetched[shard] = map[string][]gorgonia.Value{}
				sums[shard], errs[i] = r.computeShard(ctx, l, i, feed, shard, fetched[shard])
			}
		})
	}
	running.Wait()
	for _, f := range fetched {
		for name, v := range f {
			fetches[name] = append(fetches[name], v...)
		}
	}
	return sums, errors.Join(errs...)
}

// computeShard runs one virtual worker in a lane and contributes what comes
// of it, each gradient as soon as it is there.
func (r *Replica) computeShard(ctx context.Context, l *lane, track int, feed Feed, shard int, fetches map[string][]gorgonia.Value) ([]float64, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := l.load(feed, shard, r.tables); err != nil {
		return nil, err
	}
	leaf, variables := r.lo+shard, len(l.model.Variables)
	for i := range variables {
		l.gradients[i] = r.client.Gradient(leaf, i)
	}
	w := watch{r: r, l: l, leaf: leaf}
	fills := shard == 0 && r.tuner.looksAt(r.step)
	ready := func(i int) {
		r.hooks.ready(track, l.differentiated, i)
		if fills && i < variables {
			r.tuner.marks.fills(i, r.declared.Variables[i], l.gradients[i])
		}
		if w.passes(i) && i < variables {
			r.client.Contribute(leaf, i)
		}
	}
	begin := time.Now()
	sums, err := l.run(r.call(leaf, true), ready, nil)
	r.hooks.computed(track, leaf, begin)
	if err != nil {
		return nil, err
	}
	if err := w.verdict(sums[0]); err != nil {
		return nil, err
	}
	if err := r.contributeRest(l, shard); err != nil {
		return nil, err
	}
	return sums, l.fetched(true, fetches)
}

// contributeRest gives states and rows of tables to their owners.
func (r *Replica) contributeRest(l *lane, shard int) error {
	leaf := r.lo + shard
	for i, s := range l.model.States {
		variable := len(l.model.Variables) + i
		if err := copyInto(r.client.Gradient(leaf, variable), l.state(i)); err != nil {
			return fmt.Errorf("state %q: %w", s.Variable.Name(), err)
		}
		r.client.Contribute(leaf, variable)
	}
	for _, t := range r.tables {
		t.contribute(r.client, l, shard, leaf)
	}
	return nil
}
