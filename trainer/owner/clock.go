package owner

import (
	"fmt"
	"slices"
	"sync"
)

// clock bounds how far workers run ahead of each other on one owner (Ho et
// al. 2013, "More effective distributed ML via a stale synchronous parallel
// parameter server"). It counts steps that are finished, that is applied on
// this owner. A worker that finished its n-th waits until every other that
// goes on has finished n-bound.
type clock struct {
	bound uint64

	mu       sync.Mutex
	finished []uint64 // by rank
	waiting  []bool   // by rank: finished a step and is not answered
	gone     []bool   // by rank
}

// newClock begins where every worker has finished so many steps.
func newClock(finished []uint64, bound uint64) *clock {
	n := len(finished)
	return &clock{bound: bound, finished: slices.Clone(finished), waiting: make([]bool, n), gone: make([]bool, n)}
}

// resume has a worker wait that has finished so many steps, where it is too far
// ahead for another one. It returns whom to answer.
func (c *clock) resume(rank int, steps uint64) ([]int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished[rank] != steps {
		return nil, fmt.Errorf("asks for values after step %d, and has finished %d", steps, c.finished[rank])
	}
	c.waiting[rank] = true
	return c.release(), nil
}

// begin asserts the invariant: no worker begins a step more than bound steps
// ahead of another.
func (c *clock) begin(rank int, step uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slowest, any := c.slowest(); any && step > slowest+c.bound {
		return fmt.Errorf("begins step %d, more than %d ahead of the slowest worker, which finished %d", step, c.bound, slowest)
	}
	return nil
}

// finish counts a step of rank. It returns whom to answer.
func (c *clock) finish(rank int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finished[rank]++
	c.waiting[rank] = true
	return c.release()
}

// leave takes a worker out of the count. It returns whom to answer.
func (c *clock) leave(rank int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[rank], c.waiting[rank] = true, false
	return c.release()
}

// release needs c.mu.
func (c *clock) release() (ranks []int) {
	slowest, _ := c.slowest()
	for rank, waiting := range c.waiting {
		if waiting && c.finished[rank] <= slowest+c.bound {
			c.waiting[rank] = false
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// slowest returns the fewest steps that a worker which goes on has finished,
// false when all are gone. It needs c.mu.
func (c *clock) slowest() (least uint64, any bool) {
	for rank, n := range c.finished {
		if !c.gone[rank] && (!any || n < least) {
			least, any = n, true
		}
	}
	return least, any
}
