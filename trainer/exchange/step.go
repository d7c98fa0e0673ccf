package exchange

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/wire"
)

// Begin begins a step at a learning rate. absent are own virtual workers that have no
// data in it: nothing is contributed for them and they count in no average.
// All workers whose gradients are added up must give the same rate, but for
// those without any data.
func (c *Client) Begin(rate float64, absent ...int) error {
	if err := c.working(); err != nil {
		return err
	}
	if c.within || c.ahead {
		return fmt.Errorf("step %d was begun twice, or before Resume", c.step)
	}
	clear(c.absent)
	for _, leaf := range absent {
		if leaf < c.leaves.Lo || leaf >= c.leaves.Hi {
			return fmt.Errorf("begin step %d: leaf %d is not one of this worker's %d to %d", c.step, leaf, c.leaves.Lo, c.leaves.Hi-1)
		}
		c.absent[leaf-c.leaves.Lo] = true
	}
	for i := range c.brought {
		c.brought[i].Store(false)
	}
	c.within = true
	if c.apart.begin(rate) {
		c.announce(rate)
	}
	for i, absent := range c.absent {
		for variable := range c.own {
			if absent {
				c.arrive(i, variable, false)
			}
		}
	}
	return c.working()
}

// announce tells every holder that the step begins.
func (c *Client) announce(rate float64) {
	b := aggregate.Beginning{Rate: rate, Present: make([]int, len(c.parts))}
	for i := range c.parts {
		b.Present[i] = c.presentIn(i)
	}
	c.gate.post(job{begin: encodeBeginning(nil, b), step: c.step})
	for _, l := range c.locals {
		if l.serves.Load() == nil {
			continue
		}
		if err := l.begin(c.step, b); err != nil {
			c.fail(err)
		}
	}
}

// presentIn is how many virtual workers of a part have data in this step.
func (c *Client) presentIn(part int) (n int) {
	below := c.tree.Below(c.parts[part])
	for leaf := below.Lo; leaf < below.Hi; leaf++ {
		if !c.absent[leaf-c.leaves.Lo] {
			n++
		}
	}
	return n
}

// Contribute says that Gradient(leaf, variable) is complete and that no own
// leaf reads the variable any more in this step. It adds along the tree what
// is there, and sends what is complete. It may be called by any goroutine.
func (c *Client) Contribute(leaf, variable int) {
	if c.bring(leaf, variable) {
		c.arrive(leaf-c.leaves.Lo, variable, true)
	}
}

// ContributeRows brings the gradient of a sparse variable for a virtual worker: rows by
// ascending index, each once, one after the other in values. Both slices are
// the client's until Finish returns, and values may be changed by it.
func (c *Client) ContributeRows(leaf, variable int, index []int64, values []byte) {
	if variable < 0 || variable >= len(c.d.Variables) || c.d.Variables[variable].Sparse == nil {
		c.misused(fmt.Errorf("rows for variable %d, which is not sparse", variable))
		return
	}
	if !c.bring(leaf, variable) {
		return
	}
	v := c.d.Variables[variable]
	if err := c.own[variable].SetRows(leaf-c.leaves.Lo, index, values); err != nil {
		c.misused(fmt.Errorf("rows of variable %q: %w", v.Name, err))
		return
	}
	c.arrive(leaf-c.leaves.Lo, variable, true)
}

// bring notes a contribution, or a mistake of the caller.
func (c *Client) bring(leaf, variable int) bool {
	i := leaf - c.leaves.Lo
	switch {
	case i < 0 || i >= c.leaves.Len() || variable < 0 || variable >= len(c.d.Variables):
		c.misused(fmt.Errorf("gradient of variable %d for leaf %d: this worker has leaves %d to %d and %d variables",
			variable, leaf, c.leaves.Lo, c.leaves.Hi-1, len(c.d.Variables)))
	case !c.d.Variables[variable].HasGradientOf(c.rank):
		c.misused(fmt.Errorf("gradient of variable %q, to which this worker does not contribute", c.d.Variables[variable].Name))
	case c.absent[i]:
		c.misused(fmt.Errorf("gradient of variable %q for leaf %d, which was declared absent", c.d.Variables[variable].Name, leaf))
	case !c.brought[i*len(c.own)+variable].CompareAndSwap(false, true):
		c.misused(fmt.Errorf("gradient of variable %q for leaf %d came twice in step %d", c.d.Variables[variable].Name, leaf, c.step))
	default:
		return true
	}
	return false
}

// misused keeps the first mistake of the caller for Finish.
func (c *Client) misused(err error) { c.misuse.CompareAndSwap(nil, &err) }

// arrive adds a contribution and sends on what it completes.
func (c *Client) arrive(leaf, variable int, present bool) {
	part, sum, done := c.own[variable].Arrive(leaf, present)
	if !done || sum == nil || c.apart.put(variable, part, sum) {
		return
	}
	if c.relay != nil && c.relay.takes(variable) {
		c.relay.contribute(variable, part, sum)
		return
	}
	c.forward(variable, part, sum)
}

// forward takes a variable's sum of a part that this worker brings to the
// holders, and gives them a bucket when it is full.
func (c *Client) forward(variable, part int, sum aggregate.Sum) {
	bucket, full := c.out.Put(variable, part, sum)
	if !full {
		return
	}
	c.gate.post(job{bucket: bucket, part: part, step: c.step})
	if c.local != nil {
		c.local.contribute(bucket, part)
	}
}

// Finish ends the step: it returns once all values are updated. sums hold for
// every own virtual worker its loss and metrics; absent virtual workers may have nil. All
// contributions must have been made.
//
// After an error, also after ctx ended, the client is of no more use and the
// values are undefined; a [peers.PeerError] says who is to blame.
func (c *Client) Finish(ctx context.Context, sums [][]float64) (Outcome, error) {
	if err := cmp.Or(c.reason(), c.finishable(sums)); err != nil {
		c.fail(err)
		return Outcome{}, c.hangUp()
	}
	if o, alone := c.apart.finish(sums); alone {
		c.within = false
		return o, nil
	}
	for i := range c.absent {
		if c.absent[i] {
			continue
		}
		copy(wire.Floats[float64](c.own[c.d.LossIndex()].Memory(i)), sums[i])
		c.arrive(i, c.d.LossIndex(), true)
	}
	c.gate.post(job{bucket: flush, step: c.step})
	if c.relay != nil {
		c.relay.gate.post(job{bucket: flush, step: c.step})
	}
	began := time.Now()
	o, err := c.settle(ctx)
	if err != nil {
		return Outcome{}, err
	}
	c.config.Trace.Span("wait", "wait", began, time.Now(), "step", o.Step)
	result := wire.Floats[float64](c.values[c.d.LossIndex()])
	o.Loss, o.Metrics = result[0], result[1:]
	c.within = false
	return o, nil
}

// settle waits for what becomes of the step.
func (c *Client) settle(ctx context.Context) (Outcome, error) {
	if c.d.Sync.Competes() {
		return c.compete(ctx)
	}
	end, err := c.wait(ctx)
	if err != nil {
		return Outcome{}, err
	}
	o := Outcome{Step: c.Step(), VirtualWorkers: end.VirtualWorkers, Norm: end.Norm, Saved: end.Saved}
	c.step++
	if c.relay != nil {
		c.relay.finish(end)
	}
	return o, nil
}

// finishable says why the step cannot be finished.
func (c *Client) finishable(sums [][]float64) error {
	if err := c.misuse.Load(); err != nil {
		return *err
	}
	if !c.within || len(sums) > len(c.absent) {
		return fmt.Errorf("finish step %d, which was not begun, or with sums of %d leaves, of %d", c.step, len(sums), len(c.absent))
	}
	for i, absent := range c.absent {
		if absent {
			continue
		}
		if i >= len(sums) || len(sums[i]) != 1+c.d.Metrics {
			return fmt.Errorf("finish step %d: want for leaf %d a loss and %d metrics", c.step, c.leaves.Lo+i, c.d.Metrics)
		}
		for variable, v := range c.d.Variables {
			if v.HasGradientOf(c.rank) && !c.brought[i*len(c.own)+variable].Load() {
				return fmt.Errorf("finish step %d: variable %q got no gradient for leaf %d", c.step, v.Name, c.leaves.Lo+i)
			}
		}
	}
	return nil
}

// wait returns what the first holder knows of the step when every one has
// answered, with the fewest updates that any of them had, and whether any was
// told to save.
func (c *Client) wait(ctx context.Context) (end aggregate.Outcome, err error) {
	for i, answered := range c.answers() {
		o, err := c.await(ctx, answered)
		if err != nil {
			return end, err
		}
		if i == 0 {
			end = o
		}
		end.Updates, end.Saved = min(end.Updates, o.Updates), end.Saved || o.Saved
	}
	return end, nil
}

// answers returns where those answer that a step depends on.
func (c *Client) answers() (all []<-chan aggregate.Outcome) {
	for i, l := range c.links {
		switch {
		case c.up != nil && c.d.Aggregates(c.d.Holders[i]):
		case !c.shards.Load().owns[i]:
		case l != nil:
			all = append(all, l.answered)
		default:
			all = append(all, c.local.answered)
		}
	}
	if c.up != nil {
		all = append(all, c.up.answered)
	}
	return all
}

// await takes one answer. A ruling that comes instead is the error.
func (c *Client) await(ctx context.Context, answered <-chan aggregate.Outcome) (aggregate.Outcome, error) {
	select {
	case o := <-answered:
		return o, nil
	case r := <-c.verdicts:
		return aggregate.Outcome{}, r
	case <-c.failed:
		return aggregate.Outcome{}, c.hangUp()
	case <-ctx.Done():
		c.fail(context.Cause(ctx))
		return aggregate.Outcome{}, c.hangUp()
	}
}
