package policy

import (
	"fmt"
	"slices"
	"sync"
)

// backup is the mode backup:B. A step uses the first gradients and drops the
// last B (Chen et al. 2016, "Revisiting distributed synchronous SGD"). A
// worker whose gradients are dropped receives the current values and continues
// with the current step. The training survives the loss of B workers.
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

// latecomers is the Pace (the rule when workers receive values) of the mode
// backup. A worker whose gradients came too late for a step waits for the
// values after that step. The other workers receive the values as soon as the
// step is applied.
type latecomers struct {
	mu      sync.Mutex
	made    uint64 // number of steps whose gradients are applied to all shards of the variables
	waiting []latecomer
}

type latecomer struct {
	rank  int
	steps uint64 // the worker waits until this number of steps is applied, and then receives the values
}

// Applied records that the variables contain the updates of the given number of
// steps. It returns the ranks of the workers that waited for one of these
// steps.
func (l *latecomers) Applied(_ int, steps uint64) (ranks []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = max(l.made, steps) // concurrent calls may arrive out of order
	l.waiting = slices.DeleteFunc(l.waiting, func(w latecomer) bool {
		if w.steps > l.made {
			return false
		}
		ranks = append(ranks, w.rank)
		return true
	})
	return ranks
}

// Wait returns the rank of a late worker at once if the variables contain the
// updates of the given number of steps. If not, the worker waits, and a later
// call of Applied returns it.
func (l *latecomers) Wait(rank int, steps uint64) ([]int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if steps <= l.made {
		return []int{rank}, nil
	}
	l.waiting = append(l.waiting, latecomer{rank, steps})
	return nil, nil
}

// Leave returns no workers, because in mode backup no worker waits for a
// particular other worker.
func (*latecomers) Leave(int) []int { return nil }

// arbiter is the Selection of the mode backup, in which a step uses the
// gradients of the fastest workers only. A worker announces its gradients, and
// the arbiter accepts the first workers of each step. A worker sends its
// gradients only after it is accepted, so all shard holders receive gradients
// from the same workers.
//
// A worker may have begun a step while the variables were being updated. Then
// that step is already complete, and the arbiter rejects the worker's
// gradients. So accepted gradients are always computed from values after
// exactly the preceding steps.
type arbiter struct {
	quorum int // number of workers whose gradients complete a step

	mu       sync.Mutex
	step     uint64   // number of the step whose gradients are being collected
	accepted []int    // ranks of the workers accepted for the step so far
	counts   []uint64 // by rank: first step without the worker's gradients, which is 1 + the last step for which the worker was accepted
	stopped  []bool   // indexed by rank: true if the worker has finished its last step or is lost
	alive    int      // number of workers that have not stopped
}

// Commit accepts a worker's gradients if the worker's step is the one whose
// gradients are being collected. It returns Late if that step is already
// complete, and Over if too few workers are left.
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

// Leave marks a worker as finished or lost; repeated calls have no effect. If
// a lost worker was already accepted for the current step, its gradients still
// count in that step, because some shard holders (tasks that store variables)
// may have received them. If too few workers are left to complete the step,
// Leave returns the accepted workers, which wait for it.
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

// Counted returns the first step that does not use gradients of the worker
// with this rank.
func (a *arbiter) Counted(rank int) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[rank]
}
