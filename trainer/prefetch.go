package trainer

import (
	"context"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/wire"
)

// prefetch is what a replica has asked for ahead of time.
type prefetch struct {
	told  bool // Prefetch said what a step to come will be fed
	asked bool // rows were wanted, and are not awaited
}

// ahead is the part of a table that deals with steps to come.
type ahead interface {
	// aim makes the rows of a checked feed those of the step; they are still
	// to be got.
	aim(l *lane, feed Feed, shards int)
	// tell notes what a step to come will be fed; told reports whether feed is
	// that. Nobody is asked for it before shift.
	tell(l *lane, feed Feed, shards int)
	told(l *lane, feed Feed, shards int) bool
	shift()
	// hit reports whether the rows that were asked for are those of feed; take
	// makes them the rows of the step.
	hit(l *lane, feed Feed, shards int) bool
	take()
	// spread gives the step's rows to their positions.
	spread()
	// wanted are the step's rows, or those that are asked for ahead.
	wanted(ahead bool) owner.Wanted
}

// Prefetch says what a step to come will be fed, as far as lookups go, so that
// the rows of embeddings for it travel while the step before it is computed:
//
//	for ... {
//		err := replica.Prefetch(next)
//		result, err := replica.Step(ctx, feed)
//		feed, next = next, ...
//	}
//
// Rows that the step changes come again, so results are the same bits with it
// and without; so they are when a step is fed something else, which costs the
// time that was to be saved. Prefetch returns at once: the rows are asked for
// when the next Step has begun, unless that is the one that is fed this.
//
// It does nothing without embeddings, with --prefetch=false, and with a --sync
// other than sync, where it is unknown which step comes next.
func (r *Replica) Prefetch(feed Feed) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.job.config.prefetch || !r.inStep() || r.err != nil || r.ended {
		return nil
	}
	l, shards := r.lanes[0], r.hi-r.lo
	if err := l.checkLookups(feed, shards); err != nil {
		return fmt.Errorf("prefetch: %w", err)
	}
	for _, t := range r.tables {
		t.tell(l, feed, shards)
	}
	r.ahead.told = true
	return nil
}

// inStep reports whether there are rows that all workers want step by step.
func (r *Replica) inStep() bool { return len(r.tables) > 0 && r.declared.Sync.Together() }

// fetch gets the rows for a step.
func (r *Replica) fetch(ctx context.Context, feed Feed) error {
	l, shards := r.lanes[0], r.hi-r.lo
	if !r.inStep() {
		return r.pull(ctx, l, feed, shards)
	}
	asked := r.ahead.asked
	if asked {
		r.ahead.asked = false
		if err := r.client.Await(ctx); err != nil {
			return err
		}
		if r.every(func(t table) bool { return t.hit(l, feed, shards) }) {
			for _, t := range r.tables {
				t.take()
				t.spread()
			}
			return nil
		}
	}
	if r.ahead.told && r.every(func(t table) bool { return t.told(l, feed, shards) }) {
		r.ahead.told = false // it was said of this step
	}
	if asked {
		return r.pull(ctx, l, feed, shards) // a step's rows are wanted once
	}
	for _, t := range r.tables {
		t.aim(l, feed, shards)
	}
	if err := r.want(false); err != nil {
		return err
	}
	if err := r.client.Await(ctx); err != nil {
		return err
	}
	for _, t := range r.tables {
		t.spread()
	}
	return nil
}

// wantNext asks for the rows of the next step, where they are known. The one
// before it has begun.
func (r *Replica) wantNext() error {
	if !r.ahead.told || r.tuner.meets(r.step+1) {
		return nil
	}
	r.ahead = prefetch{asked: true}
	for _, t := range r.tables {
		t.shift()
	}
	return r.want(true)
}

func (r *Replica) want(ahead bool) error {
	wanted := make([]owner.Wanted, len(r.tables))
	for i, t := range r.tables {
		wanted[i] = t.wanted(ahead)
	}
	return r.client.Want(wanted)
}

func (r *Replica) every(is func(table) bool) bool {
	return !slices.ContainsFunc(r.tables, func(t table) bool { return !is(t) })
}

func (t *tableOf[T]) aim(l *lane, feed Feed, shards int) {
	t.now.index = t.arrange(l, feed, shards, t.now.index)
	t.now.set(t.width)
}

func (t *tableOf[T]) tell(l *lane, feed Feed, shards int) {
	t.next = t.arrange(l, feed, shards, t.next)
}

func (t *tableOf[T]) told(l *lane, feed Feed, shards int) bool {
	return slices.Equal(t.next, t.arrange(l, feed, shards, t.now.index))
}

func (t *tableOf[T]) shift() {
	t.asked.index, t.next = t.next, t.asked.index
	t.asked.set(t.width)
}

func (t *tableOf[T]) hit(l *lane, feed Feed, shards int) bool {
	t.now.index = t.arrange(l, feed, shards, t.now.index)
	return slices.Equal(t.asked.index, t.now.index)
}

func (t *tableOf[T]) take() { t.now, t.asked = t.asked, t.now }

func (t *tableOf[T]) wanted(ahead bool) owner.Wanted {
	f := &t.now
	if ahead {
		f = &t.asked
	}
	return owner.Wanted{Variable: t.variable, Index: f.unique, Into: wire.Bytes(f.pulled)}
}
