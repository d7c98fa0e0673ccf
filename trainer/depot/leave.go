package depot

import (
	"context"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// Wait waits until no save is under way and returns the last one's error. For
// a task other than the chief it is the end: it returns once nobody needs this
// task any more, to save or to read what it holds, and later saves do without
// it. Every task calls it before it ends in good order.
func (d *Depot) Wait(ctx context.Context) error {
	if d.chief != nil {
		return d.chief.wait(ctx)
	}
	d.mu.Lock()
	select {
	case <-d.leaving:
	default:
		close(d.leaving)
		d.up.post(message{Kind: leave})
	}
	d.mu.Unlock()
	select {
	case <-d.gone.done:
		return d.gone.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *chief) wait(ctx context.Context) error {
	c.mu.Lock()
	s := c.saving
	c.mu.Unlock()
	if s != nil {
		select {
		case <-s.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// release lets go who wants to leave and is not needed: while a save is under
// way everybody is, and until all workers have restored what they need whoever
// holds files. It needs c.mu.
func (c *chief) release() {
	if c.saving != nil || !c.decided {
		return
	}
	for _, m := range c.present() {
		if m.task.Role == cluster.Worker && !m.restored && !m.leaving && !c.fresh {
			return
		}
	}
	for _, m := range c.present() {
		if m.leaving {
			m.dismissed = true
			m.out.post(message{Kind: bye})
		}
	}
}

// Dismiss is the chief's first part of Close, which a task whose generation is given
// up may begin while it still ends other things: it lets everybody go, and waits, in
// bounded time, until they have hung up. No save is completed any more.
func (d *Depot) Dismiss() {
	if d.chief != nil {
		d.chief.dismissing.Do(d.chief.dismiss)
	}
}

// dismiss lets everybody go, in bounded time, because the chief is ending.
func (c *chief) dismiss() {
	c.mu.Lock()
	c.abandon()
	for _, m := range c.present() {
		m.dismissed = true
		m.out.post(message{Kind: bye})
	}
	c.mu.Unlock()
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	for _, m := range c.all() { // also those that were told before
		if m.task == c.config.Peers.Self {
			continue
		}
		select {
		case <-m.gone.done: // it has hung up
		case <-timer.C:
			return
		}
	}
}

// abandon gives up a save of which no manifest is being written yet: it cannot be
// completed any more. It needs c.mu.
func (c *chief) abandon() {
	s := c.saving
	if s == nil || s.sealing {
		return
	}
	if s.fail(errClosed); s.err == nil { // all is reported
		s.err = errClosed
	}
	c.withdraw(s)
}
