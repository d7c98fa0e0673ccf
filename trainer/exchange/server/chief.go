package server

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/wire"
)

// chief handles the requests that only the chief may make, between two steps:
// to save, to agree on a cut, and to conclude. Only the reader of the chief's
// connection uses it. goOn does nothing for a nil chief.
type chief struct {
	peer      *peer
	saved     uint64        // 1 + step before which the chief last saved; 0 means never
	holds     bool          // steps after the last cut wait until the chief continues
	copied    chan struct{} // closed after everything before the last saved cut is copied
	concluded bool          // the chief takes no further step
}

// take handles a frame about checkpoints.
func (c *chief) take(h wire.Header, e *aggregate.Shards) error {
	switch {
	case h.Kind == wire.Save && c.peer.server.local.Aggregator == nil && e.Alignment() == nil:
		return c.save(h, e)
	case e.Alignment() == nil || c.peer.step.unfinished(e):
	case h.Kind == wire.Save:
		return c.saveCut(h, e)
	case h.Length > 0:
	case h.Kind == wire.Cut && h.Part < message.CutKinds:
		return c.cut(e)
	case h.Kind == wire.Alone:
		return c.conclude(e)
	}
	return fmt.Errorf("unexpected %s frame of kind %d, with %d gradients to come", h.Kind, h.Part, c.peer.step.need)
}

// save copies all shards in a mode without cuts. The chief's own step must be
// over. The other workers cannot step without the chief, so all holders have
// made the same number of steps.
func (c *chief) save(h wire.Header, e *aggregate.Shards) error {
	p := c.peer
	switch {
	case h.Length != 0 || p.step.need > 0 || h.Step != p.step.begun:
		return fmt.Errorf("%s frame for step %d, with %d bytes, during step %d, with %d gradients to come",
			h.Kind, h.Step, h.Length, p.step.begun, p.step.need)
	case c.saved == h.Step+1:
		return fmt.Errorf("saves twice before step %d", h.Step)
	}
	c.saved = h.Step + 1
	if err := p.awaitTurn(); err != nil {
		return err
	}
	p.turn <- struct{}{} // only the end of a step brings another
	return p.server.save(context.Background(), e, h.Step, h.Offset)
}

// cut proposes a cut to the chief, after the previous cut is saved: how many
// steps of each group have arrived here.
func (c *chief) cut(e *aggregate.Shards) error {
	c.goOn()
	select {
	case <-c.copied:
		return c.freeze(e)
	default:
	}
	p, before := c.peer, c.copied
	p.server.running.Go(func() {
		select {
		case <-before:
			if err := c.freeze(e); err != nil {
				p.server.End(p.session.Blame(err))
			}
		case <-p.server.ctx.Done():
		}
	})
	return nil
}

// freeze counts the steps of each group of which at least a part has arrived,
// and sends the counts to the chief. The shards keep later steps for after the
// cut.
func (c *chief) freeze(e *aggregate.Shards) error {
	has, err := e.Alignment().Freeze()
	if err != nil {
		return err
	}
	c.peer.server.members.Tell(c.peer.rank, message.Sends{Header: wire.Header{Kind: wire.Cut}, Payload: message.EncodeCut(has)})
	return nil
}

// saveCut agrees on the cut that the chief chose. It saves the shards after
// everything before the cut has arrived.
func (c *chief) saveCut(h wire.Header, e *aggregate.Shards) error {
	if h.Part > 1 {
		return fmt.Errorf("%s frame of kind %d", h.Kind, h.Part)
	}
	cut, err := message.ReadCut(h, len(e.Declaration().Groups()), c.peer.session)
	if err != nil {
		return err
	}
	c.holds = h.Part == 1
	if err := e.Alignment().Agree(cut, c.holds); err != nil {
		return err
	}
	s, copied := c.peer.server, make(chan struct{})
	c.copied = copied
	s.running.Go(func() {
		defer close(copied)
		if err := s.save(s.ctx, e, cut[0], h.Offset); err != nil {
			s.End(err)
		}
	})
	return nil
}

// goOn ends the wait of the workers that the last cut holds.
func (c *chief) goOn() {
	if c != nil && c.holds {
		c.holds = false
		c.peer.server.Shards().Alignment().GoOn()
	}
}

// conclude records that the chief takes no further step, and ends the wait of
// workers that a cut holds. After all other workers have left, it tells the
// chief so, once.
func (c *chief) conclude(e *aggregate.Shards) error {
	c.goOn()
	if c.concluded {
		return nil
	}
	c.concluded = true
	s := c.peer.server
	if err := s.stop(c.peer.rank, false); err != nil {
		return err
	}
	e.Stop(c.peer.rank)
	s.running.Go(func() {
		select {
		case <-s.alone:
			s.members.Tell(c.peer.rank, message.Sends{Header: wire.Header{Kind: wire.Alone}})
		case <-s.ctx.Done():
		}
	})
	return nil
}
