package exchange

import (
	"context"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// ruling is what the first holder says of a worker's gradients.
type ruling struct {
	verdict policy.Verdict
	step    uint64 // that is being collected
}

// Error makes a ruling end a wait that it interrupts.
func (r ruling) Error() string { return "the training has ended" }

// verdict reads a ruling.
func (l *link) verdict(h wire.Header) error {
	if h.Length != 0 || h.Part >= uint32(policy.Verdicts) || l.index != 0 || !l.client.d.Sync.Competes() {
		return fmt.Errorf("unexpected %s frame", h.Kind)
	}
	select {
	case l.client.verdicts <- ruling{policy.Verdict(h.Part), h.Step}:
		return nil
	default:
		return errors.New("more verdicts than questions")
	}
}

// compete asks whether this worker's gradients count. If so they are sent and
// the step is made; if not, it gets the values of the moment and goes on from
// there.
func (c *Client) compete(ctx context.Context) (Outcome, error) {
	o := Outcome{Step: c.step}
	r, err := c.ask(ctx)
	if err != nil {
		return o, err
	}
	switch r.verdict {
	case policy.Accepted:
		c.gate.open()
	case policy.Late:
		o.Late, o.Dropped = true, c.count()
		c.fetch(r.step)
	}
	c.gate.shut()
	if r.verdict != policy.Over {
		var end aggregate.Outcome
		end, err = c.wait(ctx)
		c.step = end.Updates
		o.VirtualWorkers = end.VirtualWorkers
	}
	if r.verdict == policy.Over || errors.As(err, &r) {
		c.step = o.Step
		o.Over, o.Dropped = true, c.count()
		return o, nil
	}
	return o, err
}

// fetch asks all holders for the values after so many steps.
func (c *Client) fetch(steps uint64) {
	for _, l := range c.links {
		if err := l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Fetch, Step: steps}}); err != nil {
			l.sendFailed(err)
		}
	}
}

// ask returns the first holder's ruling.
func (c *Client) ask(ctx context.Context) (ruling, error) {
	l := c.links[0]
	if err := l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Commit, Step: c.step}}); err != nil {
		l.sendFailed(err)
	}
	select {
	case r := <-c.verdicts:
		return r, nil
	case <-c.failed:
		return ruling{}, c.hangUp()
	case <-ctx.Done():
		c.fail(context.Cause(ctx))
		return ruling{}, c.hangUp()
	}
}

// count is how many own virtual workers have gradients in this step.
func (c *Client) count() (n int) {
	for _, absent := range c.absent {
		if !absent {
			n++
		}
	}
	return n
}

// without passes on what the first holder says of a lost worker: the others are
// to settle with that step alike.
func (l *link) without(h wire.Header) error {
	c := l.client
	if h.Length != 0 || l.index != 0 || !c.d.Sync.Competes() {
		return fmt.Errorf("unexpected %s frame", h.Kind)
	}
	for _, other := range c.links[1:] {
		l.running.Go(func() {
			other.sendFailed(other.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Without, Part: h.Part, Step: h.Step}}))
		})
	}
	return nil
}
