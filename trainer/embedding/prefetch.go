package embedding

import (
	"context"
	"slices"

	"github.com/plx-run/plx/trainer/exchange"
	"github.com/plx-run/plx/trainer/replica"
)

// Prefetch notes what a step to come will be fed. RequestNext requests it.
func (t *Tables) Prefetch(r *replica.Replica, feed Feed, vws int) error {
	if len(t.tables) == 0 || !t.inStep {
		return nil
	}
	if err := t.Check(r, feed, vws); err != nil {
		return err
	}
	for _, of := range t.tables {
		of.tell(r, feed, vws)
	}
	t.told = true
	return nil
}

// Fetch gets the rows of a step that a checked feed asks for: those that were
// requested ahead, if they are the ones.
func (t *Tables) Fetch(ctx context.Context, r *replica.Replica, feed Feed, vws int) error {
	if len(t.tables) == 0 || !t.inStep {
		return t.Pull(ctx, r, feed, vws)
	}
	requested := t.requested
	if requested {
		t.requested = false
		if err := t.exchange.Await(ctx); err != nil {
			return err
		}
		if t.every(func(of *table) bool { return of.hit(r, feed, vws) }) {
			for _, of := range t.tables {
				of.take()
				of.spread()
			}
			return nil
		}
	}
	if t.told && t.every(func(of *table) bool { return of.told(r, feed, vws) }) {
		t.told = false // Prefetch meant this step
	}
	if requested {
		return t.Pull(ctx, r, feed, vws) // the rows of a step are requested once
	}
	for _, of := range t.tables {
		of.aim(r, feed, vws)
	}
	if err := t.request(); err != nil {
		return err
	}
	if err := t.exchange.Await(ctx); err != nil {
		return err
	}
	for _, of := range t.tables {
		of.spread()
	}
	return nil
}

// RequestNext requests the rows of the next step if Prefetch named them. The
// step before it has begun.
func (t *Tables) RequestNext() error {
	if !t.told {
		return nil
	}
	t.told, t.requested = false, true
	var wanted []exchange.Wanted
	for _, of := range t.tables {
		wanted = append(wanted, of.shift())
	}
	return t.exchange.Want(wanted)
}

// Ahead reports whether Prefetch named rows that were not requested yet, and
// whether rows were requested that no step has taken.
func (t *Tables) Ahead() (known, requested bool) { return t.told, t.requested }

func (t *Tables) request() error {
	var wanted []exchange.Wanted
	for _, of := range t.tables {
		wanted = append(wanted, of.wanted())
	}
	return t.exchange.Want(wanted)
}

func (t *Tables) every(is func(*table) bool) bool {
	return !slices.ContainsFunc(t.tables, func(of *table) bool { return !is(of) })
}
