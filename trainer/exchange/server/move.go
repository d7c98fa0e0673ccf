package server

import (
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// migration replaces the map of holders of a server by the next map. The mu of the
// Server guards it.
type migration struct {
	server  *Server
	epoch   uint32                  // of the current map
	asked   map[int]bool            // by rank: the worker has requested the next map
	first   int                     // rank that was the first to request the next map
	d       *layout.Declaration     // declaration with the next map; nil: not requested
	step    uint64                  // first step under the next map
	moving  *transition.Repartition // transition to the next map; nil: no worker requested it and no holder sent rows
	members *members                // of the shards under the next map
}

// admit refuses frames that a worker must not send while variables move. The
// caller of admit, refuses, agree or underWay holds the mu of the server.
func (m *migration) admit(rank int, kind wire.Kind) error {
	switch {
	case m.d == nil:
	case m.asked[rank]:
		return fmt.Errorf("%s frame while variables move", kind)
	case kind == wire.Step || kind == wire.Bye:
		return m.refuses(fmt.Sprintf("%s frame", kind))
	}
	return nil
}

// refuses returns an error that refuses an action because variables are about
// to move; nil: no worker has requested another map. what describes the action.
func (m *migration) refuses(what string) error {
	if m.d == nil {
		return nil
	}
	return fmt.Errorf("%s, but %s wants variables to move before step %d", what, worker(m.first), m.step)
}

// remap records that a worker requests another map. After all workers have
// requested the same map, it moves the variables.
func (m *migration) remap(rank int, w *transition.MoveRequest) error {
	s := m.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := m.agree(rank, w); err != nil {
		return err
	}
	if s.local.Aggregator != nil {
		s.local.Aggregator.Rows.Begin(rank, w.Step) // the host must not wait for this worker's request for rows
	}
	if len(m.asked) < s.workers.ranks.Len() || s.connected.closing {
		return nil
	}
	now, moving, d := s.shards, m.underWay(), m.d
	s.running.Go(func() { m.move(moving, now, d, w.Step) })
	return nil
}

// agree records a request for a map. It refuses a map that differs from the
// request of another worker.
func (m *migration) agree(rank int, w *transition.MoveRequest) error {
	switch {
	case w.Epoch != m.epoch+1 || m.asked[rank]:
		return fmt.Errorf("wants variables to move for epoch %d, this is epoch %d", w.Epoch, m.epoch)
	case m.d == nil:
		d, err := m.server.shards.Declaration().Placed(w.Pieces)
		if err != nil {
			return err
		}
		m.d, m.step, m.first, m.asked = d, w.Step, rank, map[int]bool{}
	case w.Step != m.step || !slices.Equal(w.Pieces, m.d.Pieces):
		return fmt.Errorf("wants other shard holders before step %d than %s before step %d", w.Step, worker(m.first), m.step)
	}
	if err := m.server.workers.movable(rank, w); err != nil {
		return err
	}
	m.asked[rank] = true
	return nil
}

// underWay returns the transition to the next map. The first call creates it.
func (m *migration) underWay() *transition.Repartition {
	if s := m.server; m.moving == nil {
		m.members = newMembers(len(s.workers.gone), s.End, nil)
		m.moving = transition.NewRepartition(s.ctx, s.holder, m.members, m.epoch+1)
	}
	return m.moving
}

// move moves the rows that arrive at this task or leave it, and ends the
// training if that fails. Then it makes the shards of the new map d current and
// tells the workers. The server of an Aggregator has no rows to move. It only ensures
// that no worker of the host continues before all of them have requested the
// map.
func (m *migration) move(moving *transition.Repartition, now *aggregate.Shards, d *layout.Declaration, step uint64) {
	s, next := m.server, (*aggregate.Shards)(nil)
	if s.local.Aggregator == nil {
		var err error
		if next, err = moving.Run(s.ctx, now, d, step); err != nil {
			s.End(err)
			return
		}
	}
	s.mu.Lock()
	members := s.members
	if next != nil {
		now, members = next, m.members
		if s.local.Worker != nil {
			members.tell[s.config.Peers.Self.Index] = s.local.Worker.Tell
		}
		s.connected.succeed(next, members, s.members, step)
	}
	s.force(now, members, func(int) uint64 { return step })
	m.epoch++
	m.asked, m.d, m.moving, m.members = nil, nil, nil, nil
	s.connected.moved(m.epoch, step)
	s.mu.Unlock()
	if s.local.Worker != nil {
		s.local.Worker.Tell(Moved{next})
	}
}

// receive takes the rows that another holder sends.
func (m *migration) receive(from peers.Peer) {
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
