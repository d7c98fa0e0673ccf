package exchange

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

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

// askCut answers the chief how far everybody is, once the cut before is saved.
func (p *peer) askCut(h wire.Header) error {
	s, e := p.server, p.server.shards
	if !p.task.IsChief() || e.Alignment() == nil || h.Part >= uint32(cutKinds) || p.unfinished() {
		return fmt.Errorf("unexpected %s frame of kind %d", h.Kind, h.Part)
	}
	p.goOn()
	select {
	case <-p.copied:
		return s.sayCut()
	default:
		before := p.copied
		s.writers.Go(func() { s.sayCutAfter(p, before) })
		return nil
	}
}

func (s *server) sayCutAfter(chief *peer, before <-chan struct{}) {
	select {
	case <-before:
	case <-s.ended:
		return
	}
	if err := s.sayCut(); err != nil {
		s.lost(chief, err)
	}
}

func (s *server) sayCut() error {
	has, err := s.shards.Alignment().Freeze()
	if err != nil {
		return err
	}
	s.members.Tell(0, sends{Header: wire.Header{Kind: wire.Cut}, Payload: encodeCut(has)})
	return nil
}

// saveCut takes the cut, and saves once all before it is there.
func (p *peer) saveCut(h wire.Header) error {
	s, e := p.server, p.server.shards
	if h.Part > 1 || p.unfinished() {
		return fmt.Errorf("%s frame of kind %d, with %d gradients to come", h.Kind, h.Part, p.need)
	}
	cut, err := readCut(e.Declaration(), h, p.conn)
	if err != nil {
		return err
	}
	p.holds = h.Part == 1
	if err := e.Alignment().Agree(cut, p.holds); err != nil {
		return err
	}
	copied := make(chan struct{})
	p.copied = copied
	s.writers.Go(func() {
		defer close(copied)
		ctx, cancel := s.untilEnd()
		defer cancel()
		if err := s.save(ctx, e, cut[0], h.Offset); err != nil {
			s.end(err)
		}
	})
	return nil
}

// goOn ends the pause of a cut that held the others.
func (p *peer) goOn() {
	if p.holds {
		p.holds = false
		p.server.shards.Alignment().GoOn()
	}
}

// conclude takes the chief's word that it takes no further step, and tells it
// once when all others have left. Others that were held go on.
func (p *peer) conclude() error {
	s := p.server
	if !p.task.IsChief() || s.shards.Alignment() == nil || p.unfinished() {
		return fmt.Errorf("unexpected %s frame", wire.Alone)
	}
	p.goOn()
	if p.concluded {
		return nil
	}
	p.concluded = true
	s.mu.Lock()
	err := s.stop(0)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.shards.Stop(0)
	s.writers.Go(func() {
		select {
		case <-s.alone:
			s.members.Tell(0, sends{Header: wire.Header{Kind: wire.Alone}})
		case <-s.ended:
		}
	})
	return nil
}
