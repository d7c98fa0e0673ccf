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

// Some synchronisation modes tolerate the loss of any worker except the chief.
// Every server then treats the lost worker like a worker that said goodbye.
// The server applies the gradients that arrived completely and ignores those
// that arrived in part.
//
// In mode backup, servers must agree on the last step in which a lost worker
// takes part. Suppose that the first shard holder accepted a worker's
// gradients for a step, and that the worker was lost while it sent them. Then
// one server may have the gradients while another does not. The other server
// cannot know whether the first holder will accept a different worker instead.
//
// Therefore the first holder announces to all workers the first step without
// the lost worker, and every worker forwards the announcement to the other
// holders. One surviving worker is enough for that. The first holder accepts
// no replacement in the lost worker's last step. A shard that has the lost
// worker's gradient uses it. All other shards divide the sum of the gradients
// that arrived by the number of virtual workers in that sum. The server logs
// the missing gradients.
//
// In mode backup, a step may complete without a certain number of late
// workers. Training fails if more workers than that are lost, because no
// further step can be completed.

// tolerable reports whether training can continue without this worker, after
// its connection failed with err. It returns false if the worker gave up
// because the chief was lost.
func (p *peer) tolerable(err error) bool {
	if known := (*peers.PeerError)(nil); errors.As(err, &known) && known.Task.IsChief() {
		return false
	}
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened && s.shards.Declaration().Sync.ToleratesLoss() && p.chief == nil
}

// lose removes a worker from the training after its connection failed or it
// violated the protocol. The goroutine that reads the connection calls lose
// after it has read the last frame.
func (p *peer) lose(err error) {
	p.cancel(err)
	s, why := p.server, p.loss(err)
	s.mu.Lock()
	e := s.shards
	if s.workers.gone[p.rank] {
		s.mu.Unlock()
		return // the worker is not lost, because it had already said goodbye
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
	p.session.Refuse(why, message.Farewell) // tell the worker why, in case it is still alive
}

// loss turns err, with which the worker's connection ended, into the error to
// report.
func (p *peer) loss(err error) *peers.PeerError {
	var known *peers.PeerError
	switch {
	case errors.Is(err, net.ErrClosed):
		err = context.Cause(p.ctx) // this task itself closed the connection; the cause of the context is the reason
	case !errors.As(err, &known):
	case known.Task == p.session.Task:
		err = known.Err
	default:
		err = fmt.Errorf("gave up: %w", err)
	}
	return &peers.PeerError{Task: p.session.Task, Addr: p.session.Addr, Err: peers.Lost(err)}
}

// without handles a Without frame. With it, the first shard holder announces
// that a worker was lost; another worker has forwarded the frame to this
// server. h.Part is the rank of the lost worker, and h.Step is the first step
// without that worker.
func (p *peer) without(h wire.Header) error {
	s := p.server
	s.mu.Lock()
	e := s.shards
	if e == nil || !e.Declaration().Sync.WorkersCompete() || e.Selection() != nil || h.Length != 0 ||
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
		other.cancel(fmt.Errorf("connection lost, reported by %s", e.Declaration().Holders[0]))
		other.session.Close() // the goroutine that reads this connection then fails and calls lose
	}
	return nil
}

// countsUntil stores step as the first step without this worker, unless such a
// step is already stored. It returns whether the worker is lost, and whether a
// step was already stored. The caller holds the mutex mu of the server.
func (p *peer) countsUntil(step uint64) (lost, known bool) {
	if known = p.counts != nil; !known {
		p.counts = &step
	}
	return p.lost, known
}

// settle completes the last step in which a lost worker takes part. counts is
// the number of the first step without that worker.
func (p *peer) settle(counts uint64) {
	s := p.server
	switch what, err := p.step.lose(s.Shards(), counts); {
	case err != nil:
		s.End(s.blameSelf(err))
	case what != "":
		s.logf("%s", what)
	}
}
