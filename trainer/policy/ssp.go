package policy

import (
	"fmt"
	"slices"
	"sync"
)

// bounded is the mode ssp:K. Each worker's gradients are applied when they
// arrive, as in async. But a worker that is more than K steps ahead of the
// slowest worker must wait, and then receives the values of that moment (Ho et
// al. 2013, "More effective distributed ML via a stale synchronous parallel
// parameter server").
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

// clock is the Pace of the mode ssp. A worker that has finished n steps waits
// until every other worker has finished at least n minus bound steps. Workers
// that take no further step do not count. A step counts as finished when this
// shard holder has applied it to all its shards.
type clock struct {
	bound uint64 // maximum number of steps that a worker may be ahead of the slowest worker

	mu       sync.Mutex
	finished []uint64 // indexed by rank: number of steps that the worker has finished
	waiting  []bool   // indexed by rank: true if the worker has finished a step and has not yet received the new values
	gone     []bool   // indexed by rank: true if the worker takes no further step
}

// Applied records that the worker has finished the given number of steps, and
// returns the workers that may continue.
func (c *clock) Applied(rank int, steps uint64) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finished[rank] = steps
	c.waiting[rank] = true
	return c.release()
}

// Wait is called after a restart from a checkpoint in which the worker was too
// far ahead. The worker then waits as it did when the checkpoint was written.
func (c *clock) Wait(rank int, steps uint64) ([]int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished[rank] != steps {
		return nil, fmt.Errorf("asks for values after step %d, and has finished %d", steps, c.finished[rank])
	}
	c.waiting[rank] = true
	return c.release(), nil
}

// Leave stops other workers from waiting for this worker, and returns the
// workers that may now continue.
func (c *clock) Leave(rank int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[rank], c.waiting[rank] = true, false
	return c.release()
}

// release returns the waiting workers that may continue, and marks them as not
// waiting. The caller must hold c.mu.
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

// slowest returns the smallest number of finished steps among the workers that
// still take steps, or 0 if there are none. The caller must hold c.mu.
func (c *clock) slowest() (least uint64) {
	any := false
	for rank, n := range c.finished {
		if !c.gone[rank] && (!any || n < least) {
			least, any = n, true
		}
	}
	return least
}
