package aggregate

import (
	"fmt"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// completion handles complete sums: it updates shards, asks for norms and tells members.
type completion struct {
	d      *layout.Declaration
	self   cluster.Task
	host   Host // the task that holds the shards; it sends the answers
	roster *layout.Roster
	list   []*Shard // the task's shards, in the order of its pieces
	groups []*group
	pace   policy.Pace // decides when workers are answered; nil means after each step of their group
	align  *Alignment  // holds updates back during a save; nil means that a checkpoint needs no cut
}

// start sets the fields that depend on the number of shards.
func (c *completion) start(groups []*group, pace policy.Pace, align *Alignment) {
	c.groups, c.pace, c.align = groups, pace, align
}

// complete handles the complete sum of shard i for group g.
func (c *completion) complete(g *group, i int) {
	if !c.align.enter(g, func() { c.complete(g, i) }) {
		return
	}
	defer c.align.exit()
	clips, norms := c.d.Clips(), c.d.Norms()
	c.list[i].settle(g.index, g.presentIn(i), norms)
	if !clips {
		c.update(g, i, 1)
	}
	p := g.summed(!clips, norms)
	if p.last && norms {
		c.host.Tell(c.leader(g), SquaresWanted{})
	}
	if !clips && !c.d.Sync.HoldsBack() {
		c.updated(i, p.end, p.chosen)
	}
	if p.last && !norms {
		c.finished(g, p.made)
	}
}

// update applies a shard's sum.
func (c *completion) update(g *group, i int, scale float64) {
	if err := c.list[i].apply(g.index, g.rate, scale); err != nil {
		c.host.Fail(fmt.Errorf("%s: update variable %q: %w", c.self, c.d.Variable(c.list[i].Variable).Name, err))
	}
}

// updated tells the contributors of the step that shard i has its new value.
func (c *completion) updated(i int, end Outcome, chosen []int) {
	kept := -1
	for _, member := range chosen {
		rank := c.roster.Contributors[member].Rank
		if to := c.audience(rank); to != kept {
			c.list[i].Keep(to)
			kept = to
		}
		c.host.Tell(rank, Updated{i, end})
	}
}

// leader is the worker that adds the norm of a group.
func (c *completion) leader(g *group) int { return c.roster.Contributors[g.members[0]].Rank }

// clip updates all shards by their sums times factor.
func (c *completion) clip(g *group, p progress, factor float64) {
	if !c.align.enter(g, func() { c.clip(g, p, factor) }) {
		return
	}
	defer c.align.exit()
	for i := range c.list {
		c.update(g, i, factor)
		if !c.d.Sync.HoldsBack() {
			c.updated(i, p.end, g.members)
		}
	}
	g.updated()
	c.close(g, p)
}

// close ends a step whose norm is known.
func (c *completion) close(g *group, p progress) {
	if !c.d.Sync.HoldsBack() {
		for _, i := range g.members {
			c.host.Tell(c.roster.Contributors[i].Rank, Closed{p.end})
		}
	}
	c.finished(g, p.made)
}

// finished records that all shards have so many steps of a group, and answers every
// worker that the pace releases.
func (c *completion) finished(g *group, made uint64) {
	if c.pace != nil {
		c.release(c.pace.Applied(c.leader(g), made))
	}
}

// release sends workers all values as they are now.
func (c *completion) release(ranks []int) {
	for _, rank := range ranks {
		end, made := c.groups[c.roster.Contributor(rank).Group].now()
		if !c.d.Sync.HoldsBack() {
			end = Outcome{Updates: made}
		}
		for i, shard := range c.list {
			shard.Keep(c.audience(rank))
			c.host.Tell(rank, Updated{i, end})
		}
		if c.d.Norms() {
			c.host.Tell(rank, Closed{end})
		}
	}
}

// audience returns the number of the copy that a rank is sent; -1 means the values.
func (c *completion) audience(rank int) int {
	if contributor := c.roster.Contributor(rank); contributor != nil {
		return c.d.Sync.Copy(rank, contributor.Group)
	}
	return -1
}

// Host is the task that holds shards. Its methods never block.
type Host interface {
	// Memory returns the memory for the values of a dense piece; nil means that the
	// shards allocate it.
	Memory(p layout.Piece) []byte
	// Tell sends an event to the worker of a rank.
	Tell(rank int, e Event)
	// Fail ends the training.
	Fail(err error)
}

// Event is sent to the workers that take part in a step.
type Event interface {
	// Counted reports whether the event is one of the Shards.Events that every step
	// has.
	Counted() bool
}

// Updated says that a shard has its new value.
type Updated struct {
	Shard int     // index of the shard among those of its holder
	End   Outcome // result of the step that updated the shard
}

// Closed says that the norm of a step is known or, on the first worker of a host, that
// the step has ended.
type Closed struct{ End Outcome }

// SquaresWanted asks the first member of a group to add up the squares of all
// holders and to answer with Shards.Scale.
type SquaresWanted struct{}

// Ended says that the worker's step will not be made, because too few workers are left.
type Ended struct{}

func (Updated) Counted() bool       { return true }
func (Closed) Counted() bool        { return true }
func (SquaresWanted) Counted() bool { return false }
func (Ended) Counted() bool         { return false }

// Outcome is the result of a step on one holder.
type Outcome struct {
	VirtualWorkers int     // number of virtual workers that took part in the step
	Norm           float64 // global norm of the step's gradients; 0 if it was not asked for or is not known yet
	Updates        uint64  // number of steps that the training, or the member's group, has made
	Saved          bool    // the chief saved a checkpoint right before the step
}

// Beginning is the first message of a contributor in a step.
type Beginning struct {
	Rate    float64 // learning rate of the step
	Present []int   // by part of the contributor: number of virtual workers with data
}
