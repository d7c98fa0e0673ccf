package exchange

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// move is a server on its way to the next map.
type move struct {
	*transition.Repartition
	members *members // of the shards that take the place of the present ones
}

// holder is the server as transitions know it.
func (s *server) holder() transition.Config {
	return transition.Config{Peers: s.config, Cluster: s.cluster, Memory: s.memory}
}

// timely refuses what a worker must not send while variables move, and what
// it sends with another map in mind.
func (p *peer) timely(h wire.Header) error {
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.moving
	switch {
	case h.Epoch != p.epoch:
		return fmt.Errorf("%s frame of epoch %d, this is epoch %d", h.Kind, h.Epoch, p.epoch)
	case m == nil:
	case m.Asked(p.task.Index):
		return fmt.Errorf("%s frame while variables move", h.Kind)
	case h.Kind == wire.Step || h.Kind == wire.Bye:
		return m.Refuses(fmt.Sprintf("%s frame", h.Kind))
	}
	return nil
}

// remap takes a worker's word of who is to hold what from the next step on.
func (p *peer) remap(h wire.Header) error {
	body, err := p.body(h)
	if err != nil {
		return err
	}
	var w transition.Wanted
	if err := json.Unmarshal(body, &w); err != nil {
		return fmt.Errorf("new owners: %w", err)
	}
	e := p.server.shards
	follows := p.events == nil || len(e.All()) == 0 // it is not told of steps
	if p.need > 0 || w.Step < p.step || w.Step > p.step && !follows {
		return fmt.Errorf("wants variables to move before step %d, during step %d with %d gradients to come", w.Step, p.step, p.need)
	}
	p.epoch, p.step, p.got = w.Epoch, w.Step, nil
	return p.server.remap(p.task.Index, &w)
}

// body reads JSON that is as long as a declaration at most.
func (p *peer) body(h wire.Header) ([]byte, error) {
	if h.Length > maxDeclaration {
		return nil, fmt.Errorf("%s frame of %d bytes, want at most %d", h.Kind, h.Length, maxDeclaration)
	}
	body := make([]byte, h.Length)
	return body, p.conn.Payload(body)
}

// remap notes what a worker wants. Once all of them want the same, it is done.
func (s *server) remap(rank int, w *transition.Wanted) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.underWay()
	if err := m.Want(rank, w, s.shards.Declaration()); err != nil {
		return err
	}
	for other, n := range s.steps {
		if n > w.Step || s.gone[other] {
			return s.blame(other, fmt.Errorf("goes on after %d steps, but %s wants variables to move before step %d", n, worker(rank), w.Step))
		}
	}
	if s.relay != nil {
		s.relay.union.begin(rank, w.Step) // whoever waits for its wants must not
	}
	if m.Count(rank) == s.ranks.Len() && !s.closing {
		s.writers.Go(func() { s.run(m) })
	}
	return nil
}

// underWay returns the move to the next map. It needs s.mu.
func (s *server) underWay() *move {
	if s.moving == nil {
		n := len(s.peers)
		m := newMembers(n, s.end, noMemory)
		s.moving = &move{transition.NewRepartition(s.life, s.holder(), m, s.epoch+1, n), m}
	}
	return s.moving
}

// run moves everything that comes here or leaves, and ends the training if that
// fails. The first worker of a host has nothing to move for the others; it only
// sees to it that none of them goes on without the move.
func (s *server) run(m *move) {
	s.mu.Lock()
	now := s.shards
	s.mu.Unlock()
	var next *aggregate.Shards
	if s.relay == nil {
		ctx, cancel := s.untilEnd()
		defer cancel()
		var err error
		if next, err = m.Run(ctx, now); err != nil {
			s.end(err)
			return
		}
	}
	s.install(m, next)
}

// untilEnd is a context that ends with the training.
func (s *server) untilEnd() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	s.writers.Go(func() {
		select {
		case <-s.ended:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// install puts the shards that follow in force, if there are any, and tells the
// workers that everything is where it belongs.
func (s *server) install(m *move, next *aggregate.Shards) {
	step := m.Step()
	s.mu.Lock()
	all := slices.Clone(s.peers)
	if next != nil {
		s.succeed(next, m.members, step)
	}
	s.epoch, s.moving = m.Epoch(), nil
	for rank := range s.steps {
		s.steps[rank] = step
	}
	s.mu.Unlock()
	if s.local != nil && next != nil {
		s.local.serves.Store(&served{next, next.Declaration().PiecesOf(s.local.index)})
	}
	for _, p := range all {
		if p != nil {
			p.conn.SetEpoch(m.Epoch())
			s.writers.Go(func() { p.moved(step) })
		}
	}
	if s.local != nil {
		s.local.moved <- struct{}{}
	}
}

// succeed lets shards tell everybody whom the shards before told, whose last
// word that is. It needs s.mu.
func (s *server) succeed(next *aggregate.Shards, m *members, step uint64) {
	last := make([]succeeds, len(s.peers))
	for rank, p := range s.peers {
		if p != nil && p.events != nil {
			events := make(chan aggregate.Event, next.Events()+4)
			last[rank] = succeeds{next, events, step}
			m.tell[rank] = func(e aggregate.Event) { events <- e }
		}
	}
	if s.local != nil {
		m.tell[s.local.client.rank] = s.local.tell
	}
	for rank, e := range last {
		if e.events != nil {
			s.members.Tell(rank, e) // there is room: nothing else is on its way
		}
	}
	s.shards, s.members = next, m
}

// moved tells the worker that all rows are where they belong.
func (p *peer) moved(step uint64) {
	err := p.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Moved, Step: step}})
	if err = p.quiet(err); err != nil {
		p.server.lost(p, err)
	}
}

// receiveRows takes what another holder brings.
func (s *server) receiveRows(from peers.Peer) {
	s.mu.Lock()
	if s.shards == nil || !s.opened || s.closing {
		s.mu.Unlock()
		err := errors.New("nothing is to move here")
		s.logf("refused rows from %s: %v", from.Task, err)
		transition.Refuse(from, s.holder(), err)
		return
	}
	d, m := s.shards.Declaration(), s.underWay()
	s.mu.Unlock()
	if err := m.Serve(from, d); err != nil {
		s.logf("refused rows from %s: %v", from.Task, err)
	}
}

// room answers whether what a worker has in mind could be here.
func (p *peer) room(h wire.Header) error {
	e := p.server.shards
	if p.server.relay != nil {
		return fmt.Errorf("unexpected %s frame", h.Kind)
	}
	body, err := p.body(h)
	if err != nil {
		return err
	}
	var pieces []layout.Piece
	if err := json.Unmarshal(body, &pieces); err != nil {
		return fmt.Errorf("asks for room: %w", err)
	}
	d, err := e.Declaration().Placed(pieces)
	if err != nil {
		return fmt.Errorf("asks for room: %w", err)
	}
	r := p.server.holder().Room(e.Declaration(), d)
	answer := binary.LittleEndian.AppendUint64(nil, r.Need)
	return p.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Room}, Payload: binary.LittleEndian.AppendUint64(answer, r.Free)})
}
