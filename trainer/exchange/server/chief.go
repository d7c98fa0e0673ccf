package server

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/wire"
)

// chief handles the requests that only the chief (the worker of rank 0) may
// send between two steps: save a checkpoint, agree on a consistent cut (the
// number of steps of each group of workers that a checkpoint contains), and
// report that the chief takes no more steps. Only the goroutine that reads the
// chief's connection uses it. The method releaseWorkers does nothing if it is
// called on a nil *chief.
type chief struct {
	peer      *peer
	saved     uint64        // number of the step before which the chief last saved a checkpoint, plus 1; 0 means that it never saved one
	holds     bool          // true if workers must wait after the last checkpoint until the chief takes its next step
	copied    chan struct{} // closed after the shards are copied for the last checkpoint
	concluded bool          // true if the chief has reported that it takes no further step
}

// take handles a frame of the chief that concerns checkpoints.
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

// save copies all shards for a checkpoint, in mode sync (all workers take each
// step together). The chief must have completed its own step. The other
// workers cannot take a step without the chief, so all shards have seen the
// same number of steps.
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
	p.turn <- struct{}{} // awaitTurn took the token that allows one step; a save is not a step, so put it back
	return p.server.save(context.Background(), e, h.Step, h.Offset)
}

// cut begins a checkpoint: it calls freeze, which tells the chief from which
// steps gradients have arrived at this server. Before that, it waits until the
// shards of the previous checkpoint are copied.
func (c *chief) cut(e *aggregate.Shards) error {
	c.releaseWorkers()
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

// freeze sends the chief, for each group of workers, the number of steps of
// which at least one gradient has arrived. The shards apply gradients of later
// steps only after the checkpoint is saved.
func (c *chief) freeze(e *aggregate.Shards) error {
	has, err := e.Alignment().Freeze()
	if err != nil {
		return err
	}
	c.peer.server.members.Tell(c.peer.rank, message.Sends{Header: wire.Header{Kind: wire.Cut}, Payload: message.EncodeCut(has)})
	return nil
}

// saveCut reads which steps of each group of workers the checkpoint shall
// contain; the chief has chosen them. It saves the shards after all gradients
// of these steps have arrived.
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

// releaseWorkers lets workers take steps again. It has an effect only if the
// chief made them wait while the last checkpoint was taken.
func (c *chief) releaseWorkers() {
	if c != nil && c.holds {
		c.holds = false
		c.peer.server.Shards().Alignment().GoOn()
	}
}

// conclude records that the chief takes no further step. Workers that have
// waited for the chief since the last checkpoint may continue. After all other
// workers have left, the server sends the chief one Alone frame.
func (c *chief) conclude(e *aggregate.Shards) error {
	c.releaseWorkers()
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
