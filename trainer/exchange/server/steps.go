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

// admit returns the shards that a frame is for. It refuses frames of another
// epoch than epoch, and all frames before all workers are ready. While
// variables move it refuses some frames, see migration.
func (s *Server) admit(rank int, h wire.Header, epoch uint32) (*aggregate.Shards, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.opened:
		return nil, fmt.Errorf("%s frame before all workers were ready", h.Kind)
	case h.Epoch != epoch:
		return nil, fmt.Errorf("%s frame of epoch %d, this is epoch %d", h.Kind, h.Epoch, epoch)
	}
	return s.shards, s.migration.admit(rank, h.Kind)
}

// Begin begins a step for the worker in the same process.
func (s *Server) Begin(step uint64, b aggregate.Beginning) error {
	return s.begin(s.config.Peers.Self.Index, step, b)
}

// begin counts a step that a worker begins, and tells the shards and the aggregator.
func (s *Server) begin(rank int, step uint64, b aggregate.Beginning) error {
	s.mu.Lock()
	e := s.shards
	err := s.workers.advance(e, rank, step)
	s.mu.Unlock()
	if err == nil {
		err = e.Begin(rank, step, b)
	}
	if err == nil && s.local.Aggregator != nil {
		s.local.Aggregator.Begin(rank, step, b)
	}
	return err
}

// Save gives Config.Checkpoints a copy of the shards, between two steps of the
// worker in the same process. step is the number of steps so far, number that
// of earlier saves.
func (s *Server) Save(step, number uint64) error {
	return s.save(context.Background(), s.Shards(), step, number)
}

// save gives Config.Checkpoints a copy of shards e.
func (s *Server) save(ctx context.Context, e *aggregate.Shards, step, number uint64) error {
	snapshot := transition.Snapshot{Step: step, Number: number, Holder: s.config.Peers.Self}
	if err := transition.Save(ctx, e, snapshot, s.config.Checkpoints); err != nil {
		return s.blameSelf(err)
	}
	return nil
}

// Room returns the memory that the map of next needs on this task's host, and
// the free memory.
func (s *Server) Room(now, next *layout.Declaration) transition.RoomError {
	return s.holder.Room(now, next)
}

// Remap requests another map on behalf of the worker in the same process.
func (s *Server) Remap(w *transition.MoveRequest) error {
	return s.migration.remap(s.config.Peers.Self.Index, w)
}

// stop records, between two steps, that a worker takes no further step. goodbye
// is set if the worker also says goodbye.
func (s *Server) stop(rank int, goodbye bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.migration.refuses("said goodbye"); err != nil {
		return err
	}
	return s.workers.stop(s.shards, rank, goodbye)
}

// Leave says goodbye on behalf of the worker in the same process. The training
// ends after all other workers have said goodbye too.
func (s *Server) Leave() {
	rank := s.config.Peers.Self.Index
	if err := s.stop(rank, true); err != nil {
		s.End(err)
	} else {
		s.leaves(rank)
	}
	s.left()
}

// leaves tells the shards and the aggregator that a worker sends nothing more.
func (s *Server) leaves(rank int) {
	if s.local.Aggregator != nil {
		s.local.Aggregator.Rows.Leave(rank)
	}
	s.shards.Leave(rank)
}

// parted reports whether a worker has said goodbye or is lost.
func (s *Server) parted(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers.gone[rank]
}

// left counts a worker whose goodbye was answered, or that is lost. The last
// worker ends the training.
func (s *Server) left() {
	s.mu.Lock()
	alone, last := s.workers.left()
	if alone {
		close(s.alone)
	}
	s.mu.Unlock()
	if last {
		s.End(nil)
	}
}

// WorkerState is the state of a worker as a server knows it.
type WorkerState struct {
	Task           cluster.Task
	Addr           string // of its connection; "": the worker is not connected, or in the same process
	Declared       bool   // the worker has sent its declaration
	Ready          bool   // the worker may begin a step now
	Gone           bool   // the worker has said goodbye or is lost
	Lost           bool   // training continues without the worker
	Steps          uint64 // steps begun
	Sent, Received uint64 // bytes on its connection, including headers and heartbeats
}

// Workers returns the state of all workers by rank.
func (s *Server) Workers() (all []WorkerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank, p := range s.connected.peers {
		w := WorkerState{Task: worker(rank), Addr: s.workers.addr[rank], Declared: s.workers.declared[rank] != nil,
			Gone: s.workers.gone[rank], Steps: s.workers.steps[rank]}
		if p != nil {
			w.Ready, w.Lost = len(p.turn) > 0, p.lost
			w.Sent, w.Received = p.session.Traffic()
		}
		all = append(all, w)
	}
	return all
}

// Opened reports whether workers may begin steps.
func (s *Server) Opened() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}
