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

// Some synchronisation modes tolerate the loss of a worker other than the
// chief. Every server then treats the lost worker like a worker that said
// goodbye. The server applies the gradients that arrived completely and ignores
// those that arrived in part.
//
// If workers compete, servers must agree on the last step in which a lost
// worker counts. Suppose that the first holder accepted a worker for a step,
// and that the worker was lost while it sent its gradients. One server has
// them, another server does not. The other server cannot know whether a further
// worker will be accepted instead. So the first holder tells all workers the
// first step in which the lost worker does not count. Every worker forwards
// this to the other holders, so one surviving worker is enough. No further
// worker is accepted for the lost worker's last step. Pieces that have the lost
// worker's gradient keep it. The other pieces are updated from the gradients
// that arrived, divided by the number of their virtual workers. The server logs
// this.
//
// In that mode the training ends if more workers are lost than may be late: no
// further step is possible, although training is not complete.

// tolerable reports whether training continues after the peer is lost with err.
// It does not if the worker gave up because the chief was lost.
func (p *peer) tolerable(err error) bool {
	if known := (*peers.PeerError)(nil); errors.As(err, &known) && known.Task.IsChief() {
		return false
	}
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened && s.shards.Declaration().Sync.ToleratesLoss() && p.chief == nil
}

// lose treats the worker like one that has left, after it was lost or violated
// the protocol. The reader calls it after its last frame.
func (p *peer) lose(err error) {
	p.fall(err)
	s, why := p.server, p.loss(err)
	s.mu.Lock()
	e := s.shards
	if s.workers.gone[p.rank] {
		s.mu.Unlock()
		return // the worker had already said goodbye
	}
	p.lost = true
	if err := s.workers.lose(p.rank, e.Declaration()); err != nil {
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
	p.session.Refuse(why, message.Farewell) // the worker may still be alive
}

// loss returns the error to report for the loss of the peer. err is the error
// with which the connection ended.
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

// without handles the first holder's announcement of a lost worker, which every
// worker forwards. h.Part is the rank of the lost worker, h.Step the first step
// in which it does not count.
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
		return s.workers.blame(int(h.Part), errors.New("lost before all workers were ready"))
	}
	other := s.connected.peers[h.Part]
	lost, done := other.countsUntil(h.Step)
	done = done || s.workers.gone[h.Part] && !lost
	s.mu.Unlock()
	switch {
	case done:
	case lost:
		other.settle(h.Step)
	default:
		other.fall(fmt.Errorf("connection lost, says %s", e.Declaration().Holders[0]))
		other.session.Close() // the peer's reader then calls lose
	}
	return nil
}

// countsUntil records the first step in which the worker does not count, unless
// it is known. It reports whether the worker is lost and whether that step was
// known. The caller holds the mu of the server.
func (p *peer) countsUntil(step uint64) (lost, known bool) {
	if known = p.counts != nil; !known {
		p.counts = &step
	}
	return p.lost, known
}

// settle completes the last step in which the lost worker counts. counts is the
// first step in which it does not.
func (p *peer) settle(counts uint64) {
	s := p.server
	switch what, err := p.step.lose(s.Shards(), counts); {
	case err != nil:
		s.End(s.blameSelf(err))
	case what != "":
		s.logf("%s", what)
	}
}
