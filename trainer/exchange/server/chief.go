package server

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/wire"
)

// chief is what only the chief may ask a server for, between two steps: saves,
// cuts for them, and when it is alone. The reader of the chief's connection uses
// it. The methods of a nil chief do nothing.
type chief struct {
	peer      *peer
	saved     uint64        // the step before which it saved last, plus one; zero: it has not
	holds     bool          // nothing after the cut counts until the chief goes on
	copied    chan struct{} // closed once everything in the cut that was saved last is copied
	concluded bool          // it takes no further step
}

// take takes a frame about checkpoints.
func (c *chief) take(h wire.Header, e *aggregate.Shards) error {
	switch {
	case h.Kind == wire.Save && c.peer.server.local.Relay == nil && e.Alignment() == nil:
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

// save saves everything. If workers are in step the chief's own step must be
// over: the others cannot go on without it, so every holder has made as many.
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

// cut answers how far every group of workers is, once the cut before is saved.
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

func (c *chief) freeze(e *aggregate.Shards) error {
	has, err := e.Alignment().Freeze()
	if err != nil {
		return err
	}
	c.peer.server.members.Tell(c.peer.rank, message.Sends{Header: wire.Header{Kind: wire.Cut}, Payload: message.EncodeCut(has)})
	return nil
}

// saveCut takes the cut, and saves once all before it is there.
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

// goOn ends the pause of a cut that held the others.
func (c *chief) goOn() {
	if c != nil && c.holds {
		c.holds = false
		c.peer.server.Shards().Alignment().GoOn()
	}
}

// conclude notes that the chief takes no further step, and tells it once when
// all others have left. Others that were held go on.
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
