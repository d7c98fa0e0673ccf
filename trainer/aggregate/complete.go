package aggregate

import (
	"fmt"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// completion is what complete sums bring about: updates, norms and answers.
type completion struct {
	d      *layout.Declaration
	self   cluster.Task
	host   Host
	roster *layout.Roster
	list   []*Shard
	groups []*group
	pace   policy.Pace // nil: workers are answered by the steps of their groups alone
	align  *Alignment  // nil: a checkpoint needs no cut
}

func (c *completion) add(shard *Shard) { c.list = append(c.list, shard) }

// start takes what is there once all shards are.
func (c *completion) start(groups []*group, pace policy.Pace, align *Alignment) {
	c.groups, c.pace, c.align = groups, pace, align
}

// complete does all that the sum of a shard brings about.
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

// updated tells those that wait for the shard's value.
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

// finished notes that all shards have so many steps of a group, and answers
// every worker that need not wait any longer.
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

// audience is which copy of the values a rank is sent, -1: the values.
func (c *completion) audience(rank int) int {
	if contributor := c.roster.Contributor(rank); contributor != nil {
		return c.d.Sync.Copy(rank, contributor.Group)
	}
	return -1
}
