package policy

import (
	"fmt"
	"slices"
	"sync"
)

// ssp:K: as async, but a worker that is K steps ahead of another is answered
// only when that one has moved, with the values of that moment (Ho et al. 2013,
// "More effective distributed ML via a stale synchronous parallel parameter
// server").
var bounded = mode{
	name:      "ssp",
	numbered:  "K",
	groups:    eachWorker,
	copies:    perGroup,
	holdsBack: true,
	cuts:      true,
	losses:    anyLoss,
	pace:      newClock,
}

func newClock(number int, steps []uint64) Pace {
	n := len(steps)
	return &clock{bound: uint64(number), finished: slices.Clone(steps), waiting: make([]bool, n), gone: make([]bool, n)}
}

// clock is the pace of ssp. A worker that has finished its n-th step waits
// until every other that goes on has finished n-bound. A step is finished when
// it is applied to all shards of this holder.
type clock struct {
	bound uint64 // number of steps that a worker may be ahead of the slowest

	mu       sync.Mutex
	finished []uint64 // by rank: number of steps finished
	waiting  []bool   // by rank: the worker has finished a step and is not answered
	gone     []bool   // by rank: the worker takes no further step
}

// Applied counts a worker's step.
func (c *clock) Applied(rank int, steps uint64) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finished[rank] = steps
	c.waiting[rank] = true
	return c.release()
}

// Wait is for a worker that a checkpoint has further ahead than is allowed: it
// waits as it did when the checkpoint was made.
func (c *clock) Wait(rank int, steps uint64) ([]int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished[rank] != steps {
		return nil, fmt.Errorf("asks for values after step %d, and has finished %d", steps, c.finished[rank])
	}
	c.waiting[rank] = true
	return c.release(), nil
}

// Leave takes a worker out of the count.
func (c *clock) Leave(rank int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[rank], c.waiting[rank] = true, false
	return c.release()
}

// release returns the workers that need not wait any longer. It needs c.mu.
func (c *clock) release() (ranks []int) {
	slowest := c.slowest()
	for rank, waiting := range c.waiting {
		if waiting && c.finished[rank] <= slowest+c.bound {
			c.waiting[rank] = false
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// slowest returns the fewest steps that a worker which goes on has finished; 0
// if all are gone. It needs c.mu.
func (c *clock) slowest() (least uint64) {
	any := false
	for rank, n := range c.finished {
		if !c.gone[rank] && (!any || n < least) {
			least, any = n, true
		}
	}
	return least
}
