package server

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// mover brings a server from one map of holders to the next. The Server's mu
// guards its fields.
type mover struct {
	server  *Server
	epoch   uint32                  // of the map of who holds what
	moving  *transition.Repartition // to the next map; nil: no worker has asked for one
	members *members                // of the shards that will take the place of the present ones
}

// admit refuses frames that a worker must not send while variables move. It
// needs the server's mu.
func (m *mover) admit(rank int, kind wire.Kind) error {
	switch {
	case m.moving == nil:
	case m.moving.Asked(rank):
		return fmt.Errorf("%s frame while variables move", kind)
	case kind == wire.Step || kind == wire.Bye:
		return m.moving.Refuses(fmt.Sprintf("%s frame", kind))
	}
	return nil
}

// remap notes what map a worker wants. Once all of them want the same, variables move.
func (m *mover) remap(rank int, w *transition.Wanted) error {
	s := m.server
	s.mu.Lock()
	defer s.mu.Unlock()
	moving := m.underWay()
	if err := moving.Want(rank, w, s.shards.Declaration()); err != nil {
		return err
	}
	if err := s.roll.movable(rank, w); err != nil {
		return err
	}
	if s.local.Relay != nil {
		s.local.Relay.Rows.Begin(rank, w.Step) // workers that wait for its request must not
	}
	if moving.Count(rank) == s.roll.ranks.Len() && !s.connected.closing {
		now := s.shards
		s.running.Go(func() { m.move(moving, now) })
	}
	return nil
}

// underWay returns the move to the next map. It needs the server's mu.
func (m *mover) underWay() *transition.Repartition {
	if s, n := m.server, len(m.server.roll.gone); m.moving == nil {
		m.members = newMembers(n, s.End, nil)
		m.moving = transition.NewRepartition(s.ctx, s.holder, m.members, m.epoch+1, n)
	}
	return m.moving
}

// move moves everything that comes here or leaves, and ends the training if that
// fails. Then it puts the shards of the new map in force and tells the workers.
// The first worker of a host has nothing to move for the others; it only sees to
// it that none of them goes on without the move.
func (m *mover) move(moving *transition.Repartition, now *aggregate.Shards) {
	s, next := m.server, (*aggregate.Shards)(nil)
	if s.local.Relay == nil {
		var err error
		if next, err = moving.Run(s.ctx, now); err != nil {
			s.End(err)
			return
		}
	}
	step := moving.Step()
	s.mu.Lock()
	if next != nil {
		if s.local.Worker != nil {
			m.members.hears(s.config.Peers.Self.Index, s.local.Worker.Tell)
		}
		s.connected.succeed(next, m.members, s.members, step)
		s.force(next, m.members, func(int) uint64 { return step })
	} else {
		s.force(now, s.members, func(int) uint64 { return step })
	}
	m.epoch, m.moving, m.members = moving.Epoch(), nil, nil
	s.mu.Unlock()
	if s.local.Worker != nil {
		s.local.Worker.Tell(Moved{next})
	}
	for _, p := range s.connected.all() {
		p.moved(moving.Epoch(), step)
	}
}

// receive takes what another holder brings.
func (m *mover) receive(from peers.Peer) {
	s := m.server
	s.mu.Lock()
	if s.shards == nil || !s.opened || s.connected.closing {
		s.mu.Unlock()
		err := errors.New("nothing is to move here")
		s.logf("refused rows from %s: %v", from.Task, err)
		transition.Refuse(from, s.holder, err)
		return
	}
	d, moving := s.shards.Declaration(), m.underWay()
	s.mu.Unlock()
	if err := moving.Serve(from, d); err != nil {
		s.logf("refused rows from %s: %v", from.Task, err)
	}
}
