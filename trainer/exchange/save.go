package exchange

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/wire"
)

// Save makes every holder that has pieces hand a copy of them to its
// configuration's Save. The chief calls it between two steps, at most once
// before each, and may after the last one. It does not wait for the copies:
// holders make them before they read what the chief sends next.
//
// Where workers are in step the copies of all holders are of the same moment,
// and [Outcome] of the next step tells every worker of it. In other modes they
// are of the same cut, for which the chief asks before with [Client.Cut], and
// nobody is told.
func (c *Client) Save() error {
	inStep := !c.d.Sync.Cuts()
	if err := c.savable(); err != nil {
		return err
	}
	switch {
	case inStep && c.saved == c.step+1:
		return fmt.Errorf("saved twice before step %d", c.step)
	case !inStep && c.cut == nil:
		return fmt.Errorf("saved before step %d and asked for no cut", c.step)
	}
	frame := wire.Frame{Header: wire.Header{Kind: wire.Save, Step: c.step, Offset: c.saves}, Payload: encodeCut(c.cut)}
	if c.holds {
		frame.Part = 1
	}
	number := c.saves
	c.saved, c.cut, c.holds = c.step+1, nil, false
	c.saves++
	if err := c.tellOwners(frame); err != nil {
		return err
	}
	if c.local != nil && !c.local.idle() {
		if err := c.local.server.save(context.Background(), c.local.serves.Load().shards, c.step, number); err != nil {
			c.fail(err)
		}
	}
	return c.working()
}

// Saves returns how many times Save was called.
func (c *Client) Saves() uint64 { return c.saves }

// savable says why nothing can be saved now.
func (c *Client) savable() error {
	if err := c.working(); err != nil {
		return err
	}
	switch self := c.config.Peers.Self; {
	case !self.IsChief():
		return fmt.Errorf("%s saves, which is for %s to do", self, cluster.Chief)
	case c.config.Checkpoints == nil:
		return fmt.Errorf("%s saves and was not configured to: nobody would take the copies", self)
	case c.within:
		return fmt.Errorf("saved between two steps, not in step %d", c.step)
	}
	return nil
}

// tellHolders sends a frame to all others that have pieces.
func (c *Client) tellOwners(frame wire.Frame) error {
	owns := c.shards.Load().owns
	for i, l := range c.links {
		if l == nil || !owns[i] {
			continue
		}
		if err := l.conn.Send(frame); err != nil {
			l.sendFailed(err)
			return c.working()
		}
	}
	return nil
}
