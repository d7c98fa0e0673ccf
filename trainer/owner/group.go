package owner

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// group is a set of contributors whose gradients are added. In backup mode it
// is a different one every step.
type group struct {
	index   int
	members []int // contributors

	mu     sync.Mutex
	begun  []bool // by contributor, of the group's members
	count  int    // of begun
	step   uint64 // of the group
	rate   float64
	leaves int // present in the step that is being begun

	saved   uint64  // the step before which the chief saved last, plus one
	outcome outcome // of the step that all have begun
	chosen  []int   // contributors whose gradients are in it
	left    int     // slots that are to be summed in this step
	asked   bool    // the leader is to say the norm
	made    uint64  // steps that all slots have the sums of
	applied uint64  // steps that all slots are updated by
	partly  bool    // and some by one more
	away    int     // members that have left or are lost
	wishes  []wish
	lacking map[int]int // by slot: leaves that began the step and do not come
}

// enter returns the contributors that will not take part in the step.
func (e *engine) enter(g *group, c *contributor, step uint64, b beginning) (absent []int, err error) {
	leaves := 0
	for i, n := range b.present {
		if n < 0 || n > e.roster.tree.Size(c.parts[i]) {
			return nil, fmt.Errorf("%d leaves in a part of %d", n, e.roster.tree.Size(c.parts[i]))
		}
		leaves += n
	}
	if e.clock != nil {
		if err := e.clock.begin(c.rank, step); err != nil {
			return nil, err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := e.agree(g, c, step, leaves, b.rate); err != nil {
		return nil, err
	}
	g.begun[e.roster.of[c.rank]] = true
	g.leaves += leaves
	if e.relay != nil {
		e.relay.count(c, b)
	}
	if g.count++; g.count < e.quorum(g) {
		return nil, nil
	}
	if e.d.Sync.Mode == Backup {
		g.chosen = nil
		for i, begun := range g.begun {
			if begun {
				g.chosen = append(g.chosen, i)
			} else {
				absent = append(absent, i)
			}
		}
	}
	g.outcome = outcome{leaves: g.leaves, updates: g.step + 1, saved: g.saved == g.step+1}
	clear(g.begun)
	g.step, g.count, g.leaves = g.step+1, 0, 0
	return absent, nil
}

// agree refuses what does not fit what others of the group said. It needs
// g.mu.
func (e *engine) agree(g *group, c *contributor, step uint64, leaves int, rate float64) error {
	if g.begun[e.roster.of[c.rank]] {
		return fmt.Errorf("step %d was begun twice", step)
	}
	if step != g.step {
		return fmt.Errorf("begins step %d, %s is at step %d", step, e.self, g.step)
	}
	if g.count == 0 {
		g.rate = math.NaN()
	}
	if leaves == 0 {
		return nil // it has no say
	}
	if !(rate >= 0) || math.IsInf(rate, 0) {
		return fmt.Errorf("learning rate %v at step %d", rate, step)
	}
	if !math.IsNaN(g.rate) && math.Float64bits(rate) != math.Float64bits(g.rate) {
		return fmt.Errorf("learning rate %v at step %d, another worker has %v", rate, step, g.rate)
	}
	g.rate = rate
	return nil
}

// lack notes leaves that will not be in a slot's sum of the step that was begun.
func (g *group) lack(slot, leaves int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lacking == nil {
		g.lacking = map[int]int{}
	}
	g.lacking[slot] += leaves
}

// leavesIn is how many leaves are in a slot's sum, which is complete.
func (g *group) leavesIn(slot int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.outcome.leaves - g.lacking[slot]
	delete(g.lacking, slot)
	return n
}

// quorum is how many contributors make a step of g.
func (e *engine) quorum(g *group) int {
	if e.d.Sync.Mode == Backup {
		return len(g.members) - e.d.Sync.Number
	}
	return len(g.members)
}

// apply notes that a slot was updated by the step under way, the last one or
// not. It needs g.mu.
func (g *group) apply(last bool) {
	if g.partly = !last; last {
		g.applied++
	}
}

// steps is how many steps all slots are updated by, touched how many some are.
func (g *group) steps() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.applied
}

func (g *group) touched() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.partly {
		return g.applied + 1
	}
	return g.applied
}

func (g *group) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.away++
}

// gone reports whether nothing more will come of the group.
func (g *group) gone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.away == len(g.members)
}

// wish is a worker that waits for the values after so many steps.
type wish struct {
	rank  int
	steps uint64
}

// granted returns the wishes that are fulfilled. It needs g.mu.
func (g *group) granted() (ranks []int) {
	g.wishes = slices.DeleteFunc(g.wishes, func(w wish) bool {
		if w.steps > g.made {
			return false
		}
		ranks = append(ranks, w.rank)
		return true
	})
	return ranks
}
