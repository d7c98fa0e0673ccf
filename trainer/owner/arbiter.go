package owner

import (
	"fmt"
	"slices"
	"sync"
)

// arbiter decides in backup mode, on the first owner alone, whose gradients
// count: of every step those of the first workers that have theirs (Chen et
// al. 2016, "Revisiting distributed synchronous SGD"). A worker sends
// gradients only once it was accepted, so the set is the same on every owner.
//
// A worker may have begun a step on values of which some are newer. Then the
// step was closed, and its gradients are not accepted for it: what counts was
// always computed on the values after exactly the steps before.
type arbiter struct {
	quorum int

	mu       sync.Mutex
	step     uint64   // that is being collected
	accepted []int    // ranks
	counts   []uint64 // by rank: it was accepted for no step from this one on
	stopped  []bool   // by rank: takes no further step, or is lost
	alive    int      // the others
}

// verdict is what a worker is told of its gradients.
type verdict uint32

const (
	accepted verdict = iota
	late             // the step is closed
	over             // too few workers are left for any further step
	verdicts
)

func newArbiter(workers, backup int, first uint64) *arbiter {
	return &arbiter{quorum: workers - backup, stopped: make([]bool, workers), alive: workers, step: first, counts: slices.Repeat([]uint64{first}, workers)}
}

// commit answers a worker that has its gradients for a step. current is the
// step that is being collected.
func (a *arbiter) commit(rank int, step uint64) (v verdict, current uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case step > a.step || slices.Contains(a.accepted, rank):
		return 0, 0, fmt.Errorf("has gradients for step %d, the training is at step %d", step, a.step)
	case a.alive < a.quorum:
		return over, a.step, nil
	case step < a.step:
		return late, a.step, nil
	}
	a.accepted, a.counts[rank] = append(a.accepted, rank), step+1
	if len(a.accepted) == a.quorum {
		a.step++
		a.accepted = nil
	}
	return accepted, step, nil
}

// leave counts, once, a worker that is done or lost. It returns whom to tell
// that their step will not be made any more. One that is lost after it was
// accepted keeps its place in that step: others may have what it sent, and
// nobody takes the place twice.
func (a *arbiter) leave(rank int) (waiting []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped[rank] {
		return nil
	}
	a.stopped[rank] = true
	a.alive--
	if a.alive >= a.quorum {
		return nil
	}
	waiting, a.accepted = a.accepted, nil
	return waiting
}

// counted returns the step from which on a worker counts in none.
func (a *arbiter) counted(rank int) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[rank]
}

// commit takes a worker's question whether its gradients count.
func (e *engine) commit(rank int, step uint64) (verdict, uint64, error) {
	if e.arbiter == nil {
		return 0, 0, fmt.Errorf("asks whether its gradients count, which is not decided here")
	}
	return e.arbiter.commit(rank, step)
}

// fetch answers a late worker as soon as so many steps are made, and one that is
// ahead when it may go on.
func (e *engine) fetch(rank int, steps uint64) error {
	if e.clock != nil {
		ranks, err := e.clock.resume(rank, steps)
		e.release(ranks)
		return err
	}
	if e.d.Sync.Mode != Backup {
		return fmt.Errorf("asks for values, which come by themselves")
	}
	g := e.groups[0]
	g.mu.Lock()
	if steps > g.made {
		g.wishes = append(g.wishes, wish{rank, steps})
		g.mu.Unlock()
		return nil
	}
	end := outcome{updates: g.made}
	g.mu.Unlock()
	e.give(rank, end)
	return nil
}
