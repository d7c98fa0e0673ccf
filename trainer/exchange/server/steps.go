package server

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// admit returns the shards that a frame of a map's epoch is for. It refuses
// frames before all workers are ready, and while variables move.
func (s *Server) admit(rank int, h wire.Header, epoch uint32) (*aggregate.Shards, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.opened:
		return nil, fmt.Errorf("%s frame before all workers were ready", h.Kind)
	case h.Epoch != epoch:
		return nil, fmt.Errorf("%s frame of epoch %d, this is epoch %d", h.Kind, h.Epoch, epoch)
	}
	return s.shards, s.mover.admit(rank, h.Kind)
}

// Begin begins a step of the worker in the same process.
func (s *Server) Begin(step uint64, b aggregate.Beginning) error {
	return s.begin(s.config.Peers.Self.Index, step, b)
}

// begin counts a worker's step, and passes on that the worker begins it.
func (s *Server) begin(rank int, step uint64, b aggregate.Beginning) error {
	s.mu.Lock()
	e := s.shards
	err := s.roll.advance(e, rank, step)
	s.mu.Unlock()
	if err == nil {
		err = e.Begin(rank, step, b)
	}
	if err == nil && s.local.Relay != nil {
		s.local.Relay.Begin(rank, step, b)
	}
	return err
}

// Save hands a copy of the shards to Config.Checkpoints, between two steps of
// the worker in the same process.
func (s *Server) Save(step, number uint64) error {
	return s.save(context.Background(), s.Shards(), step, number)
}

// save hands on a copy of what shards have.
func (s *Server) save(ctx context.Context, e *aggregate.Shards, step, number uint64) error {
	snapshot := transition.Snapshot{Step: step, Number: number, Holder: s.config.Peers.Self}
	if err := transition.Save(ctx, e, snapshot, s.config.Checkpoints); err != nil {
		return s.blameSelf(err)
	}
	return nil
}

// Room returns what a map takes of the memory of this task's host.
func (s *Server) Room(now, next *layout.Declaration) transition.RoomError {
	return s.holder.Room(now, next)
}

// Remap is the request of the worker in the same process for another map.
func (s *Server) Remap(w *transition.Wanted) error {
	return s.mover.remap(s.config.Peers.Self.Index, w)
}

// stop notes, between two steps, that a worker takes no further one, and whether
// it thereby says goodbye.
func (s *Server) stop(rank int, goodbye bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mover.refuses("said goodbye"); err != nil {
		return err
	}
	return s.roll.stop(s.shards, rank, goodbye)
}

// Leave is the goodbye of the worker in the same process. The training ends
// once all others have said goodbye too.
func (s *Server) Leave() {
	rank := s.config.Peers.Self.Index
	if err := s.stop(rank, true); err != nil {
		s.End(err)
	} else {
		s.leaves(rank)
	}
	s.left()
}

// leaves tells all that count on a worker that it sends no more.
func (s *Server) leaves(rank int) {
	if s.local.Relay != nil {
		s.local.Relay.Rows.Leave(rank)
	}
	s.shards.Leave(rank)
}

// parted reports whether a worker has said goodbye: it cannot be lost any more.
func (s *Server) parted(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roll.gone[rank]
}

// left counts a worker that has its answer to a goodbye, or is lost; the last
// one ends the training.
func (s *Server) left() {
	s.mu.Lock()
	alone, last := s.roll.left()
	if alone {
		close(s.alone)
	}
	s.mu.Unlock()
	if last {
		s.End(nil)
	}
}

// WorkerState is how a server sees one worker.
type WorkerState struct {
	Task           cluster.Task
	Addr           string // of its connection; "": it is not connected, or the worker in the same process
	Declared       bool   // it has said what it is about to train
	Ready          bool   // it may begin a step now
	Gone           bool   // it has said goodbye, or is lost
	Lost           bool
	Steps          uint64 // begun
	Sent, Received uint64 // bytes on its connection, headers and heartbeats included
}

// Workers returns the state of all workers by rank.
func (s *Server) Workers() (all []WorkerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank, p := range s.connected.peers {
		w := WorkerState{Task: worker(rank), Addr: s.roll.addr[rank], Declared: s.roll.declared[rank] != nil,
			Gone: s.roll.gone[rank], Steps: s.roll.steps[rank]}
		if p != nil {
			w.Ready, w.Lost = len(p.turn) > 0, p.lost
			w.Sent, w.Received = p.session.Traffic()
		}
		all = append(all, w)
	}
	return all
}

// Opened reports whether workers may step.
func (s *Server) Opened() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}
