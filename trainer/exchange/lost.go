package exchange

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// Where nobody's step needs a worker, the training goes on when it is lost: on
// every server it counts as one that has left. What came of it is applied, a
// gradient that did not come whole never is.
//
// In backup mode its step needs more. A worker that was accepted may be lost
// with its gradients in on one server and not on the next, which cannot know
// whether some are still to come from another worker in its place. So the
// first holder, which has accepted it, tells all workers up to which step the
// lost one counts, and all of them pass that on to the other holders: one that
// lives is enough. Nobody takes its place in that step. Pieces that have its
// gradient keep it, the others are made from those that are there, divided by
// so many; the log says so. More workers than may be late must not be lost: no
// further step could be made, and the training has not come to its end.

// fall notes, for the first reason given, that the worker cannot be served any
// more: whoever waits for it or holds something for it does so no longer.
func (p *peer) fall(why error) {
	p.falling.Do(func() {
		p.cause = why
		close(p.out)
	})
}

// spares reports whether the others go on when a peer is lost with an error:
// not if it gives up because the chief is lost.
func (s *server) spares(p *peer, err error) bool {
	if known := (*peers.PeerError)(nil); errors.As(err, &known) && known.Task.IsChief() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened && s.shards.Declaration().Sync.ToleratesLoss() && !p.task.IsChief()
}

// goOn takes a peer that was lost, or broke the protocol, for one that has
// left. Nothing is read from it any more.
func (s *server) goOn(p *peer, err error) {
	p.fall(err)
	rank, e, why := p.task.Index, s.shards, p.loss(err)
	s.mu.Lock()
	if s.gone[rank] {
		s.mu.Unlock()
		return // it had said all that it had to say
	}
	s.gone[rank], p.lost = true, true
	s.losses++
	if most := e.Declaration().Sync.MostLost(len(s.peers)); s.losses > most {
		why.Err = fmt.Errorf("%w; %d of %d workers are lost, %s tolerates %d", why.Err, s.losses, len(s.peers), e.Declaration().Sync, most)
		s.mu.Unlock()
		s.lost(p, why)
		return
	}
	if e.Selection() != nil {
		counts := e.Selection().Counted(rank)
		p.counts = &counts
	}
	counts := p.counts
	s.mu.Unlock()
	s.sayLater(fmt.Sprintf("%v; the training goes on without it", why))
	s.leaves(rank)
	if counts != nil {
		s.settle(p, *counts)
	}
	if e.Selection() != nil {
		s.announce(rank, *counts)
	}
	s.left()
	hangUp := time.AfterFunc(farewell, p.cut)
	defer hangUp.Stop()
	p.tell(why) // it may be alive
	p.conn.Drain()
}

// loss is what is said of the loss of a peer with which err was met.
func (p *peer) loss(err error) *peers.PeerError {
	var known *peers.PeerError
	switch {
	case errors.Is(err, net.ErrClosed):
		err = p.cause // it was cut
	case !errors.As(err, &known):
	case known.Task == p.task:
		err = known.Err
	default:
		err = fmt.Errorf("gave up: %w", err)
	}
	return &peers.PeerError{Task: p.task, Addr: p.addr, Err: peers.Lost(err)}
}

// sayLater logs something unless the training ends badly within a moment: then
// the loss is a part of that, as where everybody is told to stop.
func (s *server) sayLater(text string) {
	s.writers.Go(func() {
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.ended:
			if s.err != nil {
				return
			}
		}
		s.logf("%s", text)
	})
}

// announce tells all workers from which step on a lost one counts in none.
func (s *server) announce(lost int, counts uint64) {
	word := wire.Frame{Header: wire.Header{Kind: wire.Without, Part: uint32(lost), Step: counts}}
	for rank := range s.peers {
		if rank != lost {
			s.members.Tell(rank, sends(word))
		}
	}
}

// without takes the first holder's word of a lost worker. Every worker brings
// it.
func (p *peer) without(h wire.Header) error {
	s := p.server
	s.mu.Lock()
	if e := s.shards; e == nil || !e.Declaration().Sync.Competes() || e.Selection() != nil || h.Length != 0 ||
		h.Part == 0 || h.Part >= uint32(len(s.peers)) || s.peers[h.Part] == p {
		s.mu.Unlock()
		return fmt.Errorf("unexpected %s frame for worker %d", h.Kind, h.Part)
	}
	if !s.opened {
		defer s.mu.Unlock()
		return s.blame(int(h.Part), errors.New("lost before all workers were ready"))
	}
	other := s.peers[h.Part]
	parted := s.gone[h.Part] && !other.lost
	known := other.counts != nil
	if !known {
		other.counts = &h.Step
	}
	silent := other.lost
	s.mu.Unlock()
	switch {
	case parted, known:
	case silent:
		s.settle(other, h.Step)
	default:
		other.fall(fmt.Errorf("connection lost, says %s", s.shards.Declaration().Holders[0]))
		other.cut() // goOn follows
	}
	return nil
}

// settle completes the last step that a lost worker counts in with what came
// of it. It is called once, when nothing is read from it any more.
func (s *server) settle(p *peer, counts uint64) {
	l := transition.Loss{Rank: p.task.Index, Counts: counts, Begun: p.step, Present: p.parts, Got: p.got, Need: p.need}
	if _, err := l.Run(context.Background(), s.shards); err != nil {
		s.end(s.own(err))
		return
	}
	if what := l.String(); what != "" {
		s.logf("%s", what)
	}
}
