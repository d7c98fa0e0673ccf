package trainer

import (
	"context"
	"fmt"
	"iter"
)

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
	if err := r.worker.prefetch(feed); err != nil {
		return fmt.Errorf("prefetch: %w", err)
	}
	return nil
}
