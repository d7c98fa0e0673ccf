package server

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// If no step needs a certain worker, the training goes on when it is lost: on
// every server it counts as one that has left. What came of it is applied, but
// never a gradient of which a part is missing.
//
// If workers compete, its step needs more. A worker that was accepted may be
// lost with its gradients in on one server and not on the next, which cannot
// know whether some are still to come from another worker in its place. So the
// first holder, which has accepted it, tells all workers up to which step the
// lost one counts, and all of them pass that on to the other holders: one that
// lives is enough. No other worker takes its place in that step. Pieces that
// have its gradient keep it, the others are made from those that are there,
// divided by so many; the log says so. No more workers may be lost than may be
// late: no further step could be made, and the training has not come to its end.

// tolerable reports whether the others go on when a peer is lost with an error:
// not if it gives up because the chief is lost.
func (p *peer) tolerable(err error) bool {
	if known := (*peers.PeerError)(nil); errors.As(err, &known) && known.Task.IsChief() {
		return false
	}
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened && s.shards.Declaration().Sync.ToleratesLoss() && p.chief == nil
}

// lose takes the worker, which was lost or broke the protocol, for one that has
// left. Nothing is read from it any more.
func (p *peer) lose(err error) {
	p.fall(err)
	s, why := p.server, p.loss(err)
	s.mu.Lock()
	e := s.shards
	if s.roll.gone[p.rank] {
		s.mu.Unlock()
		return // it had said all that it had to say
	}
	p.lost = true
	if err := s.roll.lose(p.rank, e.Declaration()); err != nil {
		s.mu.Unlock()
		s.End(&peers.PeerError{Task: why.Task, Addr: why.Addr, Err: fmt.Errorf("%w; %w", why.Err, err)})
		return
	}
	if e.Selection() != nil {
		counts := e.Selection().Counted(p.rank)
		p.counts = &counts
	}
	counts := p.counts
	s.mu.Unlock()
	s.logLater(fmt.Sprintf("%v; the training goes on without it", why))
	s.leaves(p.rank)
	if counts != nil {
		p.settle(*counts)
	}
	if e.Selection() != nil {
		s.connected.announce(p.rank, *counts)
	}
	s.left()
	p.session.Refuse(why, message.Farewell) // it may be alive
}

// loss returns what is said of the loss of a peer with which err was met.
func (p *peer) loss(err error) *peers.PeerError {
	var known *peers.PeerError
	switch {
	case errors.Is(err, net.ErrClosed):
		err = context.Cause(p.ctx) // this task has closed the connection
	case !errors.As(err, &known):
	case known.Task == p.session.Task:
		err = known.Err
	default:
		err = fmt.Errorf("gave up: %w", err)
	}
	return &peers.PeerError{Task: p.session.Task, Addr: p.session.Addr, Err: peers.Lost(err)}
}

// without takes what the first holder has announced of a lost worker. Every
// worker passes it on.
func (p *peer) without(h wire.Header) error {
	s := p.server
	s.mu.Lock()
	e := s.shards
	if e == nil || !e.Declaration().Sync.Competes() || e.Selection() != nil || h.Length != 0 ||
		h.Part == 0 || h.Part >= uint32(len(s.connected.peers)) || int(h.Part) == p.rank {
		s.mu.Unlock()
		return fmt.Errorf("unexpected %s frame for worker %d", h.Kind, h.Part)
	}
	if !s.opened {
		defer s.mu.Unlock()
		return s.roll.blame(int(h.Part), errors.New("lost before all workers were ready"))
	}
	other := s.connected.peers[h.Part]
	lost, done := other.countsUntil(h.Step)
	done = done || s.roll.gone[h.Part] && !lost
	s.mu.Unlock()
	switch {
	case done:
	case lost:
		other.settle(h.Step)
	default:
		other.fall(fmt.Errorf("connection lost, says %s", e.Declaration().Holders[0]))
		other.session.Close() // lose follows
	}
	return nil
}

// countsUntil notes the step from which on the worker counts in none, if that is
// not known yet. It needs the server's mu.
func (p *peer) countsUntil(step uint64) (lost, known bool) {
	if known = p.counts != nil; !known {
		p.counts = &step
	}
	return p.lost, known
}

// settle completes the last step that the lost worker counts in.
func (p *peer) settle(counts uint64) {
	s := p.server
	switch what, err := p.step.lose(s.Shards(), counts); {
	case err != nil:
		s.End(s.blameSelf(err))
	case what != "":
		s.logf("%s", what)
	}
}
