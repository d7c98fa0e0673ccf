package trainer

import (
	"context"
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
