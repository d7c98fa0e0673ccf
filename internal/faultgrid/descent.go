package main

import (
	"errors"
	"fmt"
)

// trace finds out from whose checkpoint each generation goes on, and so what of
// each is in effect: nothing of one that the last does not come from.
func (a *account) trace() error {
	a.origin, a.next = map[int]int{}, map[int]int{}
	var errs []error
	for g := range a.last + 1 {
		err := a.trail(g)
		errs = append(errs, err)
	}
	if a.books[key{a.last, 0}] == nil {
		return errors.Join(append(errs, fmt.Errorf("the chief has noted nothing in generation %d, the last", a.last))...)
	}
	for g := a.last; ; g = a.origin[g] {
		errs = append(errs, a.together(g))
		made := a.origin[g]
		if made < 0 {
			return errors.Join(append(errs, a.alike())...)
		}
		a.next[made] = g
	}
}

// alike fails for a generation in vain that has gone on from the same checkpoint
// as the one in effect, with another step of some worker's.
func (a *account) alike() error {
	var errs []error
	for _, k := range a.keys() {
		b := a.books[k]
		g, effective := a.next[a.origin[k.generation]]
		if !effective || g == k.generation || a.apart(g) != a.apart(k.generation) || a.books[key{g, 0}].from != a.books[key{k.generation, 0}].from {
			continue
		}
		if other := a.books[key{g, k.worker}]; other != nil && other.from != b.from {
			errs = append(errs, fmt.Errorf("worker:%d begins with step %d in generation %d and with %d in %d, from the same checkpoint", k.worker, b.from, k.generation, other.from, g))
		}
	}
	return errors.Join(errs...)
}

// trail finds out where a generation comes from: its chief's word has the step
// with which it has joined.
func (a *account) trail(g int) error {
	a.origin[g] = -1
	chief := a.books[key{g, 0}]
	if chief == nil || chief.from == 0 {
		return nil // it was ended before it began, or begins anew
	}
	for _, r := range a.resumed {
		if r.behind == chief.from && r.made < g {
			a.origin[g] = max(a.origin[g], r.made)
		}
	}
	if a.origin[g] < 0 {
		return fmt.Errorf("generation %d begins with step %d, and no chief has said from which checkpoint", g, chief.from)
	}
	return nil
}

// together fails for a worker of a generation in effect that was never there, and
// for one that begins with a step of its own where all have the chief's.
func (a *account) together(g int) error {
	var errs []error
	chief := a.books[key{g, 0}]
	for w := range a.workers[g] {
		switch b := a.books[key{g, w}]; {
		case b == nil:
			errs = append(errs, fmt.Errorf("worker:%d has noted nothing in generation %d, which is in effect", w, g))
		case chief != nil && b.from != chief.from && !a.apart(g):
			errs = append(errs, fmt.Errorf("worker:%d in generation %d begins with step %d, the chief with %d", w, g, b.from, chief.from))
		}
	}
	return errors.Join(errs...)
}

// apart says that a generation's workers begin with a step of their own each: as
// many of them have made the checkpoint, in which they were apart.
func (a *account) apart(g int) bool {
	return a.mode != "backup" && a.workers[a.origin[g]] == a.workers[g]
}

// cut is the step behind which the checkpoint from which generation later goes on
// has nothing of a worker. It is known of the chief, and of a worker that begins
// with it.
func (a *account) cut(k key, later int) (step int, known bool) {
	known = k.worker == 0 || a.mode == "backup" || a.apart(later)
	if !a.apart(later) {
		k.worker = 0
	}
	b := a.books[key{later, k.worker}]
	if b == nil {
		return 0, false
	}
	return b.from, known
}
