package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// Outcome is the result of a step.
type Outcome struct {
	Step           uint64    // number of the step; the first step is 0
	VirtualWorkers int       // number of virtual workers (parts of the batch) whose gradients the step has added, on all workers of the group
	Loss           float64   // mean of the losses of those virtual workers, or their sum if Declaration.Sum is set
	Metrics        []float64 // means of the metrics of those virtual workers; the slice is valid until the next step
	Norm           float64   // global norm of the gradients before clipping; 0 unless the declaration requests it
	// Saved is true if the chief saved a checkpoint immediately before this
	// step. It is always false if the mode is not sync.
	Saved bool
	// Late, Dropped and Over are used only in mode backup, in which a step
	// does not wait for the slowest workers. Late is true if the step does not
	// use this worker's gradients, because other workers were faster. Dropped
	// is the number of virtual workers whose gradients are lost in this way.
	// Over is true if too few workers are left to complete this step.
	Late    bool
	Dropped int
	Over    bool
}

// Resume must be called before the first step. If this worker was ahead of
// slower workers when the checkpoint was made, Resume waits until they have
// caught up, and then gets the current values. Otherwise it returns
// immediately.
func (c *Client) Resume(ctx context.Context) error {
	if !c.ahead {
		return nil
	}
	c.ahead = false
	c.holders.fetch(c.progress.step)
	_, err := c.holders.wait(ctx)
	return err
}

// Gradient returns the memory for one virtual worker's gradient of a dense
// variable. The caller fills the memory between Begin and Contribute.
func (c *Client) Gradient(virtual, variable int) []byte {
	return c.own[variable].Memory(virtual - c.virtual.Lo)
}

// Begin begins a step. rate is the learning rate. absent lists those virtual
// workers of this worker that have no data in this step. They contribute no
// gradients, and averages exclude them. All workers of a group must pass the
// same rate, except those without any data.
func (c *Client) Begin(rate float64, absent ...int) error {
	h, step := c.holders, c.progress.step
	if err := h.working(); err != nil {
		return err
	}
	if c.progress.within || c.ahead {
		return fmt.Errorf("step %d was begun twice, or before Resume", step)
	}
	clear(c.absent)
	for _, virtual := range absent {
		if virtual < c.virtual.Lo || virtual >= c.virtual.Hi {
			return fmt.Errorf("begin step %d: virtual worker %d is not one of this worker's %d to %d", step, virtual, c.virtual.Lo, c.virtual.Hi-1)
		}
		c.absent[virtual-c.virtual.Lo] = true
	}
	for i := range c.brought {
		c.brought[i].Store(false)
	}
	c.progress.within = true
	b := aggregate.Beginning{Rate: rate, Present: make([]int, len(c.parts))}
	for i := range c.parts {
		b.Present[i] = c.presentIn(i)
	}
	c.gate.post(job{begin: message.EncodeBeginning(nil, b), step: step})
	for _, l := range h.serving {
		if err := l.begin(step, b); err != nil {
			h.fail(err)
		}
	}
	for i, absent := range c.absent {
		for variable := range c.own {
			if absent {
				c.arrive(i, variable, false)
			}
		}
	}
	return h.working()
}

// presentIn returns the number of virtual workers that have data in this step,
// in one part (subtree) of the summation tree. part is an index in c.parts.
func (c *Client) presentIn(part int) (n int) {
	below := c.tree.Below(c.parts[part])
	for virtual := below.Lo; virtual < below.Hi; virtual++ {
		if !c.absent[virtual-c.virtual.Lo] {
			n++
		}
	}
	return n
}

// present returns the number of virtual workers of this worker that have data
// in this step.
func (c *Client) present() (n int) {
	for i := range c.parts {
		n += c.presentIn(i)
	}
	return n
}

// Contribute reports that the caller has filled Gradient(virtual, variable),
// and that no virtual worker of this worker reads the variable again in this
// step. Contribute adds the gradient to the sums of the summation tree, and
// sends each sum that is now complete. Any goroutine may call it.
func (c *Client) Contribute(virtual, variable int) {
	if c.bring(virtual, variable) {
		c.arrive(virtual-c.virtual.Lo, variable, true)
	}
}

// ContributeRows contributes one virtual worker's gradient of a sparse
// variable. index lists the rows in strictly ascending order. values contains
// their gradients, one row after the other. Until Finish returns, the caller
// must use neither slice; the client may change values.
func (c *Client) ContributeRows(virtual, variable int, index []int64, values []byte) {
	d := c.holders.d
	if variable < 0 || variable >= len(d.Variables) || d.Variables[variable].Sparse == nil {
		c.misused(fmt.Errorf("rows for variable %d, which is not sparse", variable))
		return
	}
	if !c.bring(virtual, variable) {
		return
	}
	if err := c.own[variable].SetRows(virtual-c.virtual.Lo, index, values); err != nil {
		c.misused(fmt.Errorf("rows of variable %q: %w", d.Variables[variable].Name, err))
		return
	}
	c.arrive(virtual-c.virtual.Lo, variable, true)
}

// bring records that a virtual worker has contributed its gradient of a
// variable. It returns false if this is not allowed, for example for the
// second time in a step.
func (c *Client) bring(virtual, variable int) bool {
	i, d := virtual-c.virtual.Lo, c.holders.d
	switch {
	case i < 0 || i >= c.virtual.Len() || variable < 0 || variable >= len(d.Variables):
		c.misused(fmt.Errorf("gradient of variable %d for virtual worker %d: this worker has virtual workers %d to %d and %d variables",
			variable, virtual, c.virtual.Lo, c.virtual.Hi-1, len(d.Variables)))
	case c.absent[i]:
		c.misused(fmt.Errorf("gradient of variable %q for virtual worker %d, which was declared absent", d.Variables[variable].Name, virtual))
	case !c.brought[i*len(c.own)+variable].CompareAndSwap(false, true):
		c.misused(fmt.Errorf("gradient of variable %q for virtual worker %d came twice in step %d", d.Variables[variable].Name, virtual, c.progress.step))
	default:
		return true
	}
	return false
}

// misused stores the first misuse of the API in a step. Finish returns it as
// an error.
func (c *Client) misused(err error) { c.misuse.CompareAndSwap(nil, &err) }

// arrive adds the gradient of this worker's i-th virtual worker (equal part of
// the batch) to the sums of the summation tree. If a sum is now complete,
// arrive sends it. present is false if the virtual worker has no data.
func (c *Client) arrive(i, variable int, present bool) {
	part, sum, done := c.own[variable].Arrive(i, present)
	switch {
	case !done || sum == nil:
	case c.holders.aggregates(variable):
		c.holders.aggregator.Contribute(variable, part, sum)
	default:
		c.forward(variable, part, sum)
	}
}

// forward puts the sum of a variable over one subtree (part) of the summation
// tree into the variable's bucket (a group of variables that are sent
// together). If the bucket is now full, forward sends it to the tasks that
// hold these variables.
func (c *Client) forward(variable, part int, sum aggregate.Sum) {
	bucket, full := c.out.Put(variable, part, sum)
	if !full {
		return
	}
	c.gate.post(job{bucket: bucket, part: part, step: c.progress.step})
	if c.holders.local != nil {
		c.holders.local.contribute(c.out, bucket, part)
	}
}

// Finish ends the step after all gradients were contributed. It returns after
// all values are updated. sums has the loss and the metrics of every virtual
// worker of this worker; the element of an absent virtual worker may be nil.
//
// After an error, or after ctx has ended, the client cannot be used and the
// values are undefined. A [peers.PeerError] names the task that caused the
// error.
func (c *Client) Finish(ctx context.Context, sums [][]float64) (Outcome, error) {
	h := c.holders
	if err := cmp.Or(h.reason(), c.finishable(sums)); err != nil {
		h.fail(err)
		return Outcome{}, h.hangUp()
	}
	loss := h.d.LossIndex()
	for i := range c.absent {
		if !c.absent[i] {
			copy(wire.Floats[float64](c.own[loss].Memory(i)), sums[i])
			c.arrive(i, loss, true)
		}
	}
	step := c.progress.step
	c.gate.post(job{bucket: flush, step: step})
	if h.aggregator != nil {
		c.host.gate.post(job{bucket: flush, step: step})
	}
	began := time.Now()
	o, err := c.settle(ctx)
	if err != nil {
		return Outcome{}, err
	}
	h.config.Trace.Span("wait", "wait", began, time.Now(), "step", o.Step)
	result := h.memory.loss()
	o.Loss, o.Metrics = result[0], result[1:]
	c.progress.within = false
	return o, nil
}

// finishable returns an error if the caller must not finish the step, for
// example because a gradient is missing.
func (c *Client) finishable(sums [][]float64) error {
	if err := c.misuse.Load(); err != nil {
		return *err
	}
	d, step := c.holders.d, c.progress.step
	if !c.progress.within || len(sums) > len(c.absent) {
		return fmt.Errorf("finish step %d, which was not begun, or with sums of %d virtual workers, of %d", step, len(sums), len(c.absent))
	}
	for i, absent := range c.absent {
		if absent {
			continue
		}
		virtual := c.virtual.Lo + i
		if i >= len(sums) || len(sums[i]) != 1+d.Metrics {
			return fmt.Errorf("finish step %d: want for virtual worker %d a loss and %d metrics", step, virtual, d.Metrics)
		}
		for variable, v := range d.Variables {
			if !c.brought[i*len(c.own)+variable].Load() {
				return fmt.Errorf("finish step %d: variable %q got no gradient for virtual worker %d", step, v.Name, virtual)
			}
		}
	}
	return nil
}

// settle waits until all tasks that hold variables have completed the step,
// and returns the step's outcome.
func (c *Client) settle(ctx context.Context) (Outcome, error) {
	h := c.holders
	if h.d.Sync.WorkersCompete() {
		return c.compete(ctx)
	}
	end, err := h.wait(ctx)
	if err != nil {
		return Outcome{}, err
	}
	o := Outcome{Step: c.Step(), VirtualWorkers: end.VirtualWorkers, Norm: end.Norm, Saved: end.Saved}
	c.progress.step++
	if h.aggregator != nil {
		c.host.gate.shut() // from now on hold back the sums of the next step, which another worker of the host may begin at any time
		h.aggregator.Finish(end)
	}
	return o, nil
}

// compete ends a step in mode backup, in which the gradients of the slowest
// workers are dropped. It asks the first task that holds variables whether the
// step uses this worker's gradients. If so, compete sends them and waits for
// the outcome. If not, it gets the current values, and the worker continues
// with a later step.
func (c *Client) compete(ctx context.Context) (Outcome, error) {
	h, o := c.holders, Outcome{Step: c.progress.step}
	r, err := h.commit(ctx, o.Step)
	if err != nil {
		return o, err
	}
	switch r.verdict {
	case policy.Accepted:
		c.gate.open()
	case policy.Late:
		o.Late, o.Dropped = true, c.present()
		h.fetch(r.step)
	}
	c.gate.shut()
	if r.verdict != policy.Over {
		var end aggregate.Outcome
		end, err = h.wait(ctx)
		c.progress.step = end.Updates
		o.VirtualWorkers = end.VirtualWorkers
	}
	if r.verdict == policy.Over || errors.As(err, &r) {
		c.progress.step = o.Step
		o.Over, o.Dropped = true, c.present()
		return o, nil
	}
	return o, err
}

// Join takes steps without data until no worker has data. A worker that has
// run out of data calls Join, so that other workers can continue. Join returns
// nil after the first step in which no virtual worker of the whole group had
// data. In that step, Outcome.VirtualWorkers is 0 on all workers of the group.
// If the worker is the only one of its group, Join therefore takes one step.
// In mode backup, Join returns immediately, and the worker should call Close.
//
// Join repeatedly calls Begin with all virtual workers absent, and then
// Finish. A caller that has work to do after every step should call Begin and
// Finish itself.
func (c *Client) Join(ctx context.Context) error {
	if c.holders.d.Sync.WorkersCompete() {
		return c.holders.reason()
	}
	var absent []int
	for virtual := c.virtual.Lo; virtual < c.virtual.Hi; virtual++ {
		absent = append(absent, virtual)
	}
	if err := c.Resume(ctx); err != nil {
		return err
	}
	for {
		if err := c.Begin(0, absent...); err != nil {
			return err
		}
		end, err := c.Finish(ctx, nil)
		if err != nil || end.VirtualWorkers == 0 {
			return err
		}
	}
}
