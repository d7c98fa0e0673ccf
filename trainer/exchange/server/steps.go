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

// admit checks a frame from a worker and returns this server's shards. It
// returns an error if not all workers are ready. It also returns one if the
// worker sent the frame for another epoch, that is, for another distribution
// of the variables over the tasks that store them. While variables move,
// migration.admit checks the frame too.
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

// Begin begins a step for the worker in the same process as the server.
func (s *Server) Begin(step uint64, b aggregate.Beginning) error {
	return s.begin(s.config.Peers.Self.Index, step, b)
}

// begin counts a step that a worker begins, and reports the step to the
// shards. It also reports it to the aggregator, which adds up the gradients of
// the workers on a host, if this process has one.
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

// Save passes a copy of the shards to Config.Checkpoints. The worker in this
// process calls it between two steps. step is the number of steps that are
// complete, and number is the number of earlier saves.
func (s *Server) Save(step, number uint64) error {
	return s.save(context.Background(), s.Shards(), step, number)
}

// save passes a copy of shards e to Config.Checkpoints.
func (s *Server) save(ctx context.Context, e *aggregate.Shards, step, number uint64) error {
	snapshot := transition.Snapshot{Step: step, Number: number, Holder: s.config.Peers.Self}
	if err := transition.Save(ctx, e, snapshot, s.config.Checkpoints); err != nil {
		return s.blameSelf(err)
	}
	return nil
}

// Room returns how much additional memory this host needs if variables move
// between tasks, and how much is free. now and next are the declarations before
// and after the move: they say which task stores which part of the variables.
func (s *Server) Room(now, next *layout.Declaration) transition.RoomError {
	return s.holder.Room(now, next)
}

// Remap requests that variables move to other tasks. The worker in the same
// process calls it.
func (s *Server) Remap(w *transition.MoveRequest) error {
	return s.migration.remap(s.config.Peers.Self.Index, w)
}

// stop records, between two steps, that a worker takes no further step.
// goodbye is true if the worker also leaves the training.
func (s *Server) stop(rank int, goodbye bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.migration.refuses("said goodbye"); err != nil {
		return err
	}
	return s.workers.stop(s.shards, rank, goodbye)
}

// Leave says goodbye on behalf of the worker in the same process. The server
// continues until all other workers have said goodbye.
func (s *Server) Leave() {
	rank := s.config.Peers.Self.Index
	if err := s.stop(rank, true); err != nil {
		s.End(err)
	} else {
		s.leaves(rank)
	}
	s.left()
}

// leaves notifies the shards that a worker sends nothing more. It also
// notifies the aggregator, which adds up the gradients of the workers on a
// host.
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

// left counts a worker that is lost or has received the reply to its goodbye.
// After the last worker, left ends the training.
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

// WorkerState describes one worker from the server's point of view.
type WorkerState struct {
	Task           cluster.Task
	Addr           string // address of the worker's connection; empty if it is not connected or runs in this process
	Declared       bool   // true if the server has received the worker's declaration
	Ready          bool   // true if the worker may begin a step now
	Gone           bool   // true if the worker has said goodbye or is lost
	Lost           bool   // true if the worker is lost and training continues without it
	Steps          uint64 // number of steps that the worker has begun
	Sent, Received uint64 // bytes on the worker's connection, including headers and heartbeats
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
