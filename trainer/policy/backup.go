package policy

import (
	"fmt"
	"slices"
	"sync"
)

// backup:B: the first gradients of a step count, the last B are dropped (Chen
// et al. 2016, "Revisiting distributed synchronous SGD"). A late worker gets
// the current values and goes on with the current step. As many workers may be
// lost as may be late.
var backup = mode{
	name:      "backup",
	numbered:  "B",
	dropsLast: true,
	copies:    perWorker,
	cuts:      true,
	losses:    numberedLoss,
	pace:      newLatecomers,
	selection: newArbiter,
}

func newLatecomers(_ int, steps []uint64) Pace { return &latecomers{made: steps[0]} }

func newArbiter(number, workers int, first uint64) Selection {
	return &arbiter{quorum: workers - number, stopped: make([]bool, workers), alive: workers,
		step: first, counts: slices.Repeat([]uint64{first}, workers)}
}

// latecomers is the pace of backup: late workers wait for the values after the
// step that they came too late for. The others are answered by the step itself.
type latecomers struct {
	mu      sync.Mutex
	made    uint64 // number of steps that all shards have
	waiting []latecomer
}

type latecomer struct {
	rank  int
	steps uint64 // number of steps after which the worker wants the values
}

// Applied answers those who waited for the step.
func (l *latecomers) Applied(_ int, steps uint64) (ranks []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = max(l.made, steps) // a later step may have overtaken this one
	l.waiting = slices.DeleteFunc(l.waiting, func(w latecomer) bool {
		if w.steps > l.made {
			return false
		}
		ranks = append(ranks, w.rank)
		return true
	})
	return ranks
}

// Wait answers a late worker as soon as so many steps are made.
func (l *latecomers) Wait(rank int, steps uint64) ([]int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if steps <= l.made {
		return []int{rank}, nil
	}
	l.waiting = append(l.waiting, latecomer{rank, steps})
	return nil, nil
}

// Leave answers nobody: nobody waits for a single worker.
func (*latecomers) Leave(int) []int { return nil }

// arbiter is the selection of backup, the backup-worker arbiter: of every step
// the gradients of the first workers count that have theirs. A worker sends
// gradients only once it was accepted, so the set is the same on every holder.
//
// A worker may have begun a step on values of which some are newer. Then the
// step was closed, and its gradients are not accepted for it: what counts was
// always computed on the values after exactly the steps before.
type arbiter struct {
	quorum int // number of workers whose gradients make a step

	mu       sync.Mutex
	step     uint64   // the step whose gradients are being collected
	accepted []int    // ranks of the workers accepted for that step
	counts   []uint64 // by rank: the worker was accepted for no step from this number on
	stopped  []bool   // by rank: the worker takes no further step, or is lost
	alive    int      // number of workers that are not stopped
}

// Commit accepts a worker while its step is being collected.
func (a *arbiter) Commit(rank int, step uint64) (v Verdict, current uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case step > a.step || slices.Contains(a.accepted, rank):
		return 0, 0, fmt.Errorf("has gradients for step %d, the training is at step %d", step, a.step)
	case a.alive < a.quorum:
		return Over, a.step, nil
	case step < a.step:
		return Late, a.step, nil
	}
	a.accepted, a.counts[rank] = append(a.accepted, rank), step+1
	if len(a.accepted) == a.quorum {
		a.step++
		a.accepted = nil
	}
	return Accepted, step, nil
}

// Leave counts, once, a worker that is done or lost. One that is lost after it
// was accepted keeps its place in that step: others may have what it sent, and
// nobody takes the place twice.
func (a *arbiter) Leave(rank int) (waiting []int) {
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

// Counted returns the step from which on a worker counts in none.
func (a *arbiter) Counted(rank int) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[rank]
}
