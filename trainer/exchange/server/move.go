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

// migration moves variables between shard holders: it replaces the server's
// placement (the list of which holder has which pieces) by the next one. The
// mutex mu of the server guards its fields.
type migration struct {
	server  *Server
	epoch   uint32                  // version number of the current placement
	asked   map[int]bool            // true for the rank of each worker that has requested the next placement (which task holds which rows)
	first   int                     // rank of the worker that requested the next placement first
	d       *layout.Declaration     // declaration with the next placement; nil if no worker has requested a new placement
	step    uint64                  // first training step with the next placement
	moving  *transition.Repartition // transfer of rows for the next placement; nil until a worker or another shard holder begins it
	members *members                // workers that receive the events of the shards in the next placement
}

// admit returns an error for a frame of the given kind if a worker must not
// send such a frame while variables move. The callers of admit, refuses, agree
// and underWay hold the mutex mu of the server.
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

// refuses returns an error if a worker has requested that variables move. The
// parameter what describes the action that is then not allowed.
func (m *migration) refuses(what string) error {
	if m.d == nil {
		return nil
	}
	return fmt.Errorf("%s, but %s wants variables to move before step %d", what, worker(m.first), m.step)
}

// remap records that the worker with this rank requests the placement in w
// (which shard holder has which pieces). After all workers have requested the
// same placement, the server moves the variables.
func (m *migration) remap(rank int, w *transition.MoveRequest) error {
	s := m.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := m.agree(rank, w); err != nil {
		return err
	}
	if s.local.Aggregator != nil {
		s.local.Aggregator.Rows.Begin(rank, w.Step) // this worker requests no more rows for step w.Step, so the host's combined request must not wait for one from it
	}
	if len(m.asked) < s.workers.ranks.Len() || s.connected.closing {
		return nil
	}
	now, moving, d := s.shards, m.underWay(), m.d
	s.running.Go(func() { m.move(moving, now, d, w.Step) })
	return nil
}

// agree records a worker's request for a placement (which shard holder has
// which pieces). It returns an error if another worker requested a different
// placement.
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

// underWay returns the Repartition that transfers rows for the next placement
// (which shard holder has which pieces). The first call creates it.
func (m *migration) underWay() *transition.Repartition {
	if s := m.server; m.moving == nil {
		m.members = newMembers(len(s.workers.gone), s.End, nil)
		m.moving = transition.NewRepartition(s.ctx, s.holder, m.members, m.epoch+1)
	}
	return m.moving
}

// move transfers the rows that this task gains or loses, and ends the training
// if a transfer fails. Then it puts the shards of the new declaration d into
// use, and notifies the workers.
//
// A server that only adds the gradients of its host's workers
// (local.Aggregator is set) has no rows to transfer. It only ensures that all
// these workers have requested the new placement before any of them continues.
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

// receive handles a connection on which another shard holder sends rows to
// this task.
func (m *migration) receive(from peers.Peer) {
	s := m.server
	s.mu.Lock()
	if s.shards == nil || !s.opened || s.connected.closing {
		s.mu.Unlock()
		err := errors.New("no variables are moving here")
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
