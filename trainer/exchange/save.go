package exchange

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/peers"
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

// save takes the chief's word that everything is to be saved. Where workers
// are in step its own step must be over: the others cannot go on without it,
// so every holder has made as many.
func (p *peer) save(h wire.Header) error {
	e := p.server.shards
	switch {
	case !p.task.IsChief() || p.server.relay != nil:
		return fmt.Errorf("unexpected %s frame", h.Kind)
	case e.Alignment() != nil:
		return p.saveCut(h)
	case h.Length != 0 || p.need > 0 || h.Step != p.step:
		return fmt.Errorf("%s frame for step %d, with %d bytes, during step %d, with %d gradients to come",
			h.Kind, h.Step, h.Length, p.step, p.need)
	case p.saved == h.Step+1:
		return fmt.Errorf("saves twice before step %d", h.Step)
	}
	p.saved = h.Step + 1
	select {
	case <-p.turn:
		p.turn <- struct{}{} // only the end of a step brings another
	case <-p.server.ended:
		return errEnded
	}
	return p.server.save(context.Background(), e, h.Step, h.Offset)
}

// save hands on a copy of what shards have.
func (s *server) save(ctx context.Context, e *aggregate.Shards, step, number uint64) error {
	if _, err := (transition.Save{Step: step, Number: number, Holder: s.self, Into: s.checkpoints}).Run(ctx, e); err != nil {
		return s.own(err)
	}
	return nil
}

// own makes err one of this task itself, which others hear of.
func (s *server) own(err error) error {
	return &peers.PeerError{Task: s.self, Addr: s.cluster.Addr(s.self), Err: err}
}
