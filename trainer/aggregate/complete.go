package aggregate

import (
	"fmt"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// completion acts when all gradients for a shard (part of a variable) have
// arrived. It updates the shard, requests the gradient norm, and sends workers
// the events of the step.
type completion struct {
	d      *layout.Declaration
	self   cluster.Task
	host   Host // the task that holds the shards; it sends events to the workers
	roster *layout.Roster
	list   []*Shard // the task's shards, in the order of the declaration's pieces
	groups []*group
	pace   policy.Pace // decides when workers receive new values; nil means after each step of their group
	align  *Alignment  // delays updates while a checkpoint takes a consistent cut (the same steps on all shard holders); nil means that checkpoints need no cut
}

// start sets the fields whose values are known only after all shards were
// added.
func (c *completion) start(groups []*group, pace policy.Pace, align *Alignment) {
	c.groups, c.pace, c.align = groups, pace, align
}

// complete updates shard i with the complete gradient sum of g, a group of
// workers whose gradients are added. If gradients are clipped, the update
// waits for the norm. After the group's last shard, complete ends the step.
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
	if !clips && !c.d.Sync.DelaysAnswers() {
		c.updated(i, p.end, p.chosen)
	}
	if p.last && !norms {
		c.finished(g, p.made)
	}
}

// update updates shard i by the gradient sum of group g times scale.
func (c *completion) update(g *group, i int, scale float64) {
	if err := c.list[i].apply(g.index, g.rate, scale); err != nil {
		c.host.Fail(fmt.Errorf("%s: update variable %q: %w", c.self, c.d.Variable(c.list[i].Variable).Name, err))
	}
}

// updated sends an event to every worker whose gradients the step uses: shard
// i has its new value. chosen lists these workers, as indices of the roster's
// Contributors.
func (c *completion) updated(i int, end Outcome, chosen []int) {
	kept := -1
	for _, member := range chosen {
		rank := c.roster.Contributors[member].Rank
		if to := c.readerGroup(rank); to != kept {
			c.list[i].Snapshot(to)
			kept = to
		}
		c.host.Tell(rank, Updated{i, end})
	}
}

// leader returns the rank of the first worker of group g, which computes the
// group's gradient norm.
func (c *completion) leader(g *group) int { return c.roster.Contributors[g.members[0]].Rank }

// clip updates all shards by their gradient sums times factor, the factor of
// gradient clipping.
func (c *completion) clip(g *group, p progress, factor float64) {
	if !c.align.enter(g, func() { c.clip(g, p, factor) }) {
		return
	}
	defer c.align.exit()
	for i := range c.list {
		c.update(g, i, factor)
		if !c.d.Sync.DelaysAnswers() {
			c.updated(i, p.end, g.members)
		}
	}
	g.updated()
	c.close(g, p)
}

// close tells the group's workers the norm of the step's gradients, and ends
// the step.
func (c *completion) close(g *group, p progress) {
	if !c.d.Sync.DelaysAnswers() {
		for _, i := range g.members {
			c.host.Tell(c.roster.Contributors[i].Rank, Closed{p.end})
		}
	}
	c.finished(g, p.made)
}

// finished records that the gradient sums of the group's first steps are
// complete for all shards. The parameter made is the number of these steps.
// finished then sends values to every worker that the pace (the rule when
// workers receive values) releases.
func (c *completion) finished(g *group, made uint64) {
	if c.pace != nil {
		c.release(c.pace.Applied(c.leader(g), made))
	}
}

// release sends the current values of all shards to the workers with these
// ranks.
func (c *completion) release(ranks []int) {
	for _, rank := range ranks {
		end, made := c.groups[c.roster.Contributor(rank).Group].now()
		if !c.d.Sync.DelaysAnswers() {
			end = Outcome{Updates: made}
		}
		for i, shard := range c.list {
			shard.Snapshot(c.readerGroup(rank))
			c.host.Tell(rank, Updated{i, end})
		}
		if c.d.Norms() {
			c.host.Tell(rank, Closed{end})
		}
	}
}

// readerGroup returns the index, for Shard.Snapshot, of the copy of the values
// that is sent to the worker with this rank. -1 means that the worker gets the
// values themselves, without a copy.
func (c *completion) readerGroup(rank int) int {
	if contributor := c.roster.Contributor(rank); contributor != nil {
		return c.d.Sync.Copy(rank, contributor.Group)
	}
	return -1
}

// Host is the task that stores shards (parts) of the variables. Its methods
// never block.
type Host interface {
	// Memory returns memory for the values of a piece of a dense variable. nil
	// means that package aggregate allocates the memory.
	Memory(p layout.Piece) []byte
	// Tell sends an event to the worker with this rank.
	Tell(rank int, e Event)
	// Fail ends the training with err.
	Fail(err error)
}

// Event is what a shard holder (a task that stores variables) sends to a
// worker that takes part in a step: Updated, Closed, SquaresWanted or Ended.
type Event interface {
	// Counted reports whether a worker gets an event of this type in every
	// step. Shards.Events returns the number of such events per step.
	Counted() bool
}

// Updated tells a worker that a shard (part of a variable) has its new value.
type Updated struct {
	Shard int     // index of the shard among the shards of its holder (the task that stores it)
	End   Outcome // result of the step that updated the shard
}

// Closed tells a worker that the gradient norm of a step is known. For a
// worker that adds the gradients of its host, it means that the step has
// ended.
type Closed struct{ End Outcome }

// SquaresWanted asks the first worker of a group to add up the squared
// gradient norms of all shard holders. That worker replies with the norm. The
// shard holder that receives the reply passes the norm to Shards.Scale.
type SquaresWanted struct{}

// Ended tells a worker that its step is cancelled, because too few workers are
// left.
type Ended struct{}

func (Updated) Counted() bool       { return true }
func (Closed) Counted() bool        { return true }
func (SquaresWanted) Counted() bool { return false }
func (Ended) Counted() bool         { return false }

// Outcome is the result of a training step on one shard holder (a task that
// stores variables).
type Outcome struct {
	VirtualWorkers int     // number of virtual workers (parts of the batch) that took part in the step
	Norm           float64 // global norm of the step's gradients; 0 if no norm was requested or the norm is not known yet
	Updates        uint64  // number of training steps made so far: of the worker's group if groups train independently, otherwise of the whole training
	Saved          bool    // true if the chief (worker 0) saved a checkpoint right before the step
}

// Beginning is the message with which a worker begins a step. A worker that
// adds the gradients of its host sends it for all workers of the host.
type Beginning struct {
	Rate    float64 // learning rate of the step
	Present []int   // for each gradient sum that the worker will send: number of virtual workers (parts of the batch) with data in that sum
}
