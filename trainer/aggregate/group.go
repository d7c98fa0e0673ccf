package aggregate

import (
	"fmt"
	"math"
	"sync"

	"github.com/plx-run/plx/trainer/layout"
)

// group is a set of workers whose gradients are added to one sum. In
// synchronous training all workers are one group. With backup workers, the sum
// has only the workers that begin a step first.
type group struct {
	index   int
	members []int // the group's workers, as indices of Roster.Contributors
	shards  int   // number of shards that one step updates
	quorum  int   // number of workers that a step needs: the first workers that begin it, up to this number, are in the step

	// mu guards the fields below. Invariants: applied <= made <= step <=
	// made+1, and entered < quorum.
	mu      sync.Mutex
	begun   []bool  // by index of Roster.Contributors: true if that worker has begun the next step
	entered int     // number of workers that have begun the next step
	step    uint64  // the step that the group's workers begin next, counted from 0
	rate    float64 // learning rate of the last step that a worker with data has begun; NaN before the first such step
	present int     // number of virtual workers (parts of the batch) with data in the next step; counts only workers that have begun the step

	saved    uint64      // 1 + the step before which the chief saved its last checkpoint; 0 means no checkpoint was saved yet
	outcome  Outcome     // result of the newest step that enough workers (field quorum) have begun
	chosen   []int       // workers whose gradients are in the newest step, as indices of Roster.Contributors
	left     int         // number of shards that still lack the gradient sum of the newest step
	asked    bool        // true if the group's first worker was asked for the gradient norm and has not replied yet
	made     uint64      // number of steps whose gradient sums are complete for all shards
	applied  uint64      // number of steps that are applied to all shards
	partly   bool        // true if the step after the last applied one is applied to some shards, but not to all
	departed int         // number of workers of the group that have left or are lost
	lacking  map[int]int // by shard: number of virtual workers (parts of the batch) whose worker is lost, so that their gradients will not arrive
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

// enter records that worker i (an index of Roster.Contributors) begins a step,
// with data for present virtual workers. A step needs a quorum: g.quorum
// workers that have begun it. The call that completes the quorum returns the
// workers that are left out of the step.
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

// missing returns the number of workers that have not begun the next step.
func (g *group) missing() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members) - g.entered
}

// agree returns an error if worker i begins a step in contradiction to another
// worker, for example with another learning rate. The caller holds g.mu.
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
		return nil // a worker without data does not affect the step's learning rate
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

// lack records that the sum of a shard lacks the gradients of virtual workers.
// Their worker is lost after it had begun the step.
func (g *group) lack(shard, virtualWorkers int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lacking == nil {
		g.lacking = map[int]int{}
	}
	g.lacking[shard] += virtualWorkers
}

// presentIn returns the number of virtual workers whose gradients are in the
// complete sum of a shard.
func (g *group) presentIn(shard int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.outcome.VirtualWorkers - g.lacking[shard]
	delete(g.lacking, shard)
	return n
}

// progress describes a group of workers at the moment when one shard's
// gradient sum became complete.
type progress struct {
	end    Outcome // result of the step; its norm is 0 until the norm is known
	chosen []int   // workers whose gradients are in the step, as indices of Roster.Contributors
	made   uint64  // number of steps whose gradient sums are complete for all shards
	last   bool    // true if the shard was the last one of the step to get its sum
}

// summed records that the gradient sum of one shard is complete and, if
// applied is true, that the shard is updated. The slice chosen in the result
// is valid until the workers learn that the step is over.
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

// apply records that one shard was updated by the current step. last is true
// if all other shards were updated before. The caller holds g.mu.
func (g *group) apply(last bool) {
	if g.partly = !last; last {
		g.applied++
	}
}

// recordNorm records the gradient norm of the step. asked is false if no norm was
// requested.
func (g *group) recordNorm(norm float64) (p progress, asked bool) {
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

// now returns the result of the newest step that enough workers (g.quorum)
// have begun, and the number of steps whose sums are complete for all shards.
func (g *group) now() (end Outcome, made uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.outcome, g.made
}

// steps returns the number of steps that are applied to all shards.
func (g *group) steps() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.applied
}

// begunSteps returns the number of steps that are applied to at least one shard.
func (g *group) begunSteps() uint64 {
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
	g.departed++
}

// allLeft reports whether all workers of the group have left.
func (g *group) allLeft() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.departed == len(g.members)
}

// noteSave records that the chief saved a checkpoint right before a step, so
// that the step's Outcome has Saved set.
func (g *group) noteSave(step uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.saved = step + 1
}

// follow makes g the successor of the group in the parameter before, when
// pieces have moved between holders. g continues at step, and keeps the record
// of the last save.
func (g *group) follow(before *group, step uint64) {
	before.mu.Lock()
	saved := before.saved
	before.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.step, g.made, g.saved = step, step, saved
}
