package aggregate

import (
	"fmt"
	"math"
	"sync"

	"github.com/plx-run/plx/trainer/layout"
)

// group is a set of contributors whose gradients are added. If workers compete
// it is a different one every step.
type group struct {
	index   int
	members []int // the group's contributors, as indices of Roster.Contributors
	shards  int   // number of shards that a step updates
	quorum  int   // number of members that make a step: the first ones to begin it

	// mu guards the rest. applied <= made <= step <= made+1, and entered < quorum.
	mu      sync.Mutex
	begun   []bool  // by contributor: a member that has begun the next step
	entered int     // number of members that have begun the next step
	step    uint64  // the step that members begin next, counted from 0
	rate    float64 // learning rate of the last step that a member has begun with data; NaN before the first
	present int     // number of virtual workers with data, of the members that have begun the next step

	saved   uint64      // 1 + the step before which the chief saved last; 0 means never
	outcome Outcome     // result of the last step that a quorum has begun
	chosen  []int       // contributors whose gradients are in that step
	left    int         // number of shards that do not have the sum of that step yet
	asked   bool        // the group's leader was asked for the norm and has not answered
	made    uint64      // number of steps of which all shards have the sum
	applied uint64      // number of steps by which all shards are updated
	partly  bool        // some shards, but not all, are updated by one step more than applied
	away    int         // number of members that have left or are lost
	lacking map[int]int // by shard: number of virtual workers that began the step but will send nothing
}

func newGroup(r *layout.Roster, index int, d *layout.Declaration, shards int, first uint64) *group {
	g := &group{index: index, shards: shards, begun: make([]bool, len(r.Contributors)),
		rate: math.NaN(), left: shards, step: first, made: first, applied: first}
	for m := r.Groups[index].Lo; m < r.Groups[index].Hi; m++ {
		g.members = append(g.members, m)
	}
	g.chosen, g.quorum = g.members, d.Sync.Quorum(len(g.members))
	return g
}

// enter records that contributor i begins a step, with data for present virtual workers.
// After a quorum has begun the step, enter returns the members that are not in it.
func (g *group) enter(i int, step uint64, present int, rate float64) (absent []int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.agree(i, step, present, rate); err != nil {
		return nil, err
	}
	g.begun[i] = true
	g.entered++
	g.present += present
	if g.entered < g.quorum {
		return nil, nil
	}
	if g.quorum < len(g.members) {
		g.chosen = nil
		for i, begun := range g.begun {
			if begun {
				g.chosen = append(g.chosen, i)
			} else {
				absent = append(absent, i)
			}
		}
	}
	g.outcome = Outcome{VirtualWorkers: g.present, Updates: g.step + 1, Saved: g.saved == g.step+1}
	clear(g.begun)
	g.step, g.present, g.entered = g.step+1, 0, 0
	return absent, nil
}

// missing returns how many members have not begun the next step.
func (g *group) missing() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members) - g.entered
}

// agree refuses a beginning that contradicts those of other members. The caller holds
// g.mu.
func (g *group) agree(i int, step uint64, present int, rate float64) error {
	if g.begun[i] {
		return fmt.Errorf("step %d was begun twice", step)
	}
	if step != g.step {
		return fmt.Errorf("begins step %d, its group is at step %d", step, g.step)
	}
	if g.entered == 0 {
		g.rate = math.NaN()
	}
	if present == 0 {
		return nil // its rate does not matter
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

// lack records that the sum of a shard will lack virtual workers that have begun the
// step.
func (g *group) lack(shard, virtualWorkers int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lacking == nil {
		g.lacking = map[int]int{}
	}
	g.lacking[shard] += virtualWorkers
}

// presentIn returns the number of virtual workers in the complete sum of a shard.
func (g *group) presentIn(shard int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.outcome.VirtualWorkers - g.lacking[shard]
	delete(g.lacking, shard)
	return n
}

// progress is the position of a group after a shard got its sum.
type progress struct {
	end    Outcome // result of the step, as far as it is known
	chosen []int   // contributors whose gradients are in the step
	made   uint64  // number of steps of which all shards have the sum
	last   bool    // the shard was the last of the step
}

// summed records that a shard has its sum and, if applied is set, that the shard is
// updated. The slice in the result is valid until the members learn that the step is
// over.
func (g *group) summed(applied, norms bool) progress {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := progress{end: g.outcome, chosen: g.chosen}
	g.left--
	p.last = g.left == 0
	if applied {
		g.apply(p.last)
	}
	if p.last {
		g.left, g.asked = g.shards, norms
		g.made++
	}
	p.made = g.made
	return p
}

// apply records that a shard was updated by the current step. last reports that it was
// the last shard. The caller holds g.mu.
func (g *group) apply(last bool) {
	if g.partly = !last; last {
		g.applied++
	}
}

// normed records the norm of the step. It returns false if the norm was not requested.
func (g *group) normed(norm float64) (p progress, asked bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.asked {
		return p, false
	}
	end := g.outcome
	end.Norm = norm
	g.asked, g.outcome = false, end
	return progress{end: end, made: g.made, last: true}, true
}

// updated records that all shards were updated by the current step.
func (g *group) updated() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.apply(true)
}

// now returns the outcome of the last step that a quorum has begun, and the number of
// steps of which all shards have the sum.
func (g *group) now() (end Outcome, made uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.outcome, g.made
}

// steps returns the number of steps by which all shards are updated.
func (g *group) steps() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.applied
}

// touched returns the number of steps by which at least one shard is updated.
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

// gone reports whether all members have left.
func (g *group) gone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.away == len(g.members)
}

// noteSave sets Saved in the outcome of a step.
func (g *group) noteSave(step uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.saved = step + 1
}

// follow continues at a step in place of the group of the previous shards.
func (g *group) follow(before *group, step uint64) {
	before.mu.Lock()
	saved := before.saved
	before.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.step, g.made, g.saved = step, step, saved
}
