// Package server is the shard holder's side of the exchange, see package
// exchange. A Server answers the workers that connect to one task. The task is
// a parameter server, a worker that holds shards, or the first worker of a
// host. In the last case package localsum forwards the sums of the host.
//
// A Server runs one training. For every worker it has a peer: one goroutine
// reads the worker's frames, and a writer sends new values and outcomes. The
// type workers records the progress of all of them. A migration replaces the map of
// holders if variables move.
package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/localsum"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
)

const firstSilence = time.Minute // how long a worker may be silent before its declaration sets the limit

// Config identifies a shard holder and says where workers reach it.
type Config struct {
	Peers    peers.Config
	Listener *peers.Listener // nil: no other worker connects
	Cluster  cluster.Spec    // addresses of the other holders, to which rows may move
	// Checkpoints saves and restores the shards of the task. If it is nil, a
	// save is an error, and so is a declaration that names a checkpoint.
	Checkpoints transition.Checkpoints
	// Memory returns the free memory of the host in bytes; nil means
	// transition.FreeMemory.
	Memory func() (uint64, error)
}

// Worker is a worker in the same process as a Server. Its methods never block.
type Worker interface {
	// Tell passes the worker an event of a step, Opened or Moved.
	Tell(e aggregate.Event)
	// Fail ends the worker's training.
	Fail(err error)
}

// Opened is the event that workers may begin steps.
type Opened struct{}

// Moved is the event that all pieces of variables have reached their new
// holders. Shards are the new shards of this task; nil if the server belongs to
// an Aggregator.
type Moved struct{ Shards *aggregate.Shards }

// Counted implements aggregate.Event.
func (Opened) Counted() bool { return false }

// Counted implements aggregate.Event.
func (Moved) Counted() bool { return false }

// Local describes the worker in the process of a Server.
type Local struct {
	Worker      Worker
	Declaration *layout.Declaration
	Values      func(layout.Piece) []byte // returns the memory that holds the values of a dense piece
	Aggregator  *localsum.Aggregator      // aggregates for the workers of the host; nil: the server holds shards, or nothing
}

// Serve answers the workers that connect to the listener of a shard holder. It
// returns nil after every worker has said goodbye, or after the chief has
// declared that this task holds nothing. If ctx ends or training cannot
// continue, Serve tells every worker why, in bounded time. Then it returns that
// error, a [peers.PeerError] if a worker is to blame.
//
// A listener has one server. Workers that connect after its end are refused
// with the reason.
func Serve(ctx context.Context, config Config) error { return New(config).Run(ctx) }

// Server is one training on one shard holder. Any goroutine may call its
// methods.
type Server struct {
	config Config
	holder transition.Config // the configuration for package transition
	local  Local             // the worker in the same process; zero: there is none
	ctx    context.Context   // ends with the training; its cause is the reason
	cancel context.CancelCauseFunc

	alone   chan struct{}  // closed after all workers but the chief have left
	running sync.WaitGroup // goroutines of the server

	mu        sync.Mutex // guards the fields below, and the fields of connections and migration
	connected *connections
	migration *migration
	workers   workers
	shards    *aggregate.Shards      // nil until the chief has declared
	members   *members               // workers that the shards notify
	restoring []*aggregate.Restoring // pieces from a checkpoint; set when the training is declared
	filled    bool                   // all first values are present, the chief's or a checkpoint's
	opened    bool                   // workers may begin steps
	late      *time.Timer            // ends the training if it does not begin in time
}

// New makes a server that learns the declaration from the workers.
func New(config Config) *Server {
	n := config.Peers.Workers
	s := &Server{
		config: config, holder: transition.Config{Peers: config.Peers, Cluster: config.Cluster, Memory: config.Memory},
		workers: newWorkers(config.Peers.Self, n), alone: make(chan struct{}),
	}
	if config.Memory == nil {
		s.holder.Memory = transition.FreeMemory
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.connected = &connections{server: s, peers: make([]*peer, n), turned: make(chan struct{}, n)}
	s.migration = &migration{server: s}
	if n == 1 {
		close(s.alone)
	}
	return s
}

// NewLocal makes the server of a worker. The server holds the worker's shards.
// If local.Aggregator is set, it aggregates the gradients of the worker's host
// instead. If the worker holds nothing, the server only refuses workers that
// take this worker for a holder, and tells them how their declarations differ.
func NewLocal(config Config, local Local) (*Server, error) {
	s := New(config)
	s.local = local
	self, d := config.Peers.Self, local.Declaration
	s.workers.declare(self.Index, d) // the first declaration cannot differ from another
	m := newMembers(len(d.Workers), s.End, local.Values)
	m.tell[self.Index] = local.Worker.Tell
	switch {
	case local.Aggregator != nil:
		m.tell[self.Index] = func(aggregate.Event) {} // the first worker drives the aggregator and needs no events
		s.workers.ranks, s.workers.model = d.HostOf(self.Index), self.Index
		s.force(local.Aggregator.Attach(self, m), m, d.FirstStep)
		s.filled = true
	case d.HolderIndex(self) >= 0:
		shards, err := aggregate.New(d, self, m)
		if err != nil {
			return nil, err
		}
		s.force(shards, m, d.FirstStep)
		s.filled = self.IsChief() && d.Checkpoint == ""
	default:
		s.workers.model = self.Index
	}
	return s, nil
}

// Run serves until the training ends. It returns the error that ended the
// training, or nil if the training ended in good order. Call Run once.
func (s *Server) Run(ctx context.Context) error {
	s.start()
	select {
	case <-ctx.Done():
		s.End(context.Cause(ctx))
	case <-s.ctx.Done():
	}
	s.connected.farewell()
	if s.local.Worker == nil || s.config.Listener != nil && s.Shards() != nil {
		s.connected.linger(ctx)
	}
	return s.Err()
}

// End ends the training: with err, or in good order if err is nil. Only the
// first call counts.
func (s *Server) End(err error) {
	s.mu.Lock()
	first := s.ctx.Err() == nil
	if s.late != nil {
		s.late.Stop()
	}
	s.cancel(cmp.Or(err, transition.ErrEnded))
	s.mu.Unlock()
	if first && err != nil && s.local.Worker != nil {
		s.local.Worker.Fail(err)
	}
}

// Err returns the error that ended the training. It returns nil if the training
// continues or has ended in good order.
func (s *Server) Err() error {
	if err := context.Cause(s.ctx); err != transition.ErrEnded {
		return err
	}
	return nil
}

func (s *Server) logf(format string, args ...any) {
	if s.config.Peers.Logf != nil {
		s.config.Peers.Logf(slog.LevelWarn, format, args...)
	}
}

// logLater logs text after one second, unless training fails before. The loss
// of a worker is then part of that failure, for example if all workers are told
// to stop.
func (s *Server) logLater(text string) {
	s.running.Go(func() {
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			if s.Err() != nil {
				return
			}
		}
		s.logf("%s", text)
	})
}

// Shards returns the current shards; nil: there are none yet.
func (s *Server) Shards() *aggregate.Shards {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shards
}

// force makes shards e current. The worker of each rank continues at
// step(rank). The caller holds s.mu if other goroutines know s.
func (s *Server) force(e *aggregate.Shards, m *members, step func(rank int) uint64) {
	s.shards, s.members = e, m
	s.workers.continueAt(step)
}

// start lets workers connect, starts the clock and begins to restore a
// checkpoint.
func (s *Server) start() {
	purpose, brings := message.ToHolder, true
	if d := s.local.Declaration; d != nil {
		s.mu.Lock()
		s.startClock(d)
		holds := s.shards != nil && s.local.Aggregator == nil
		brings = holds && d.Movable
		var err error
		if holds && d.Checkpoint != "" {
			err = s.restore()
		}
		s.mu.Unlock()
		if err != nil {
			s.End(err)
		}
	}
	if s.local.Aggregator != nil {
		purpose = message.ToFirst
	}
	if l := s.config.Listener; l != nil {
		l.Handle(purpose, s.connected.meet)
		if brings {
			l.Handle(transition.Purpose, s.migration.receive)
		}
	}
	if s.local.Worker != nil && s.Shards() != nil {
		s.open(false) // this worker may be the only one
	}
}

// startClock ends the training after d.Start() if it has not begun by then. A
// worker that holds nothing waits for no other worker and needs no limit. The
// caller holds s.mu.
func (s *Server) startClock(d *layout.Declaration) {
	if s.late == nil && (s.local.Worker == nil || s.shards != nil) {
		s.late = time.AfterFunc(d.Start(), func() { s.tooLate(d.Start()) })
	}
}

// tooLate ends a training that has not begun in time. The error names a missing
// worker or the missing values.
func (s *Server) tooLate(limit time.Duration) {
	s.mu.Lock()
	opened, missing := s.opened, s.workers.missing()
	left := slices.IndexFunc(s.restoring, func(r *aggregate.Restoring) bool { return !r.Closed() })
	s.mu.Unlock()
	switch {
	case opened:
	case len(missing) == 0 && left >= 0:
		s.End(s.blameSelf(fmt.Errorf("not ready within %v: %s was not restored from checkpoint %q",
			limit, s.restoring[left], s.shards.Declaration().Checkpoint)))
	case len(missing) == 0:
		s.End(fmt.Errorf("not ready within %v: the chief's first values did not come", limit))
	default:
		s.End(&peers.PeerError{Task: missing[0], Addr: "never seen",
			Err: fmt.Errorf("not ready within %v: no sign of %v", limit, missing)})
	}
}

// blameSelf makes err a PeerError that blames this task, for the other tasks to
// report.
func (s *Server) blameSelf(err error) error {
	self := s.config.Peers.Self
	return &peers.PeerError{Task: self, Addr: s.config.Cluster.Addr(self), Err: err}
}

// declare records the declaration of a worker. All declarations must match that
// of the chief. The first declaration starts the clock. The error is errUseless
// if the chief gives this task no pieces.
func (s *Server) declare(rank int, d *layout.Declaration) error {
	if err := d.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(d.Workers) != len(s.workers.gone) {
		return fmt.Errorf("declares %d workers, the job has %d", len(d.Workers), len(s.workers.gone))
	}
	s.startClock(d)
	if err := s.workers.declare(rank, d); err != nil {
		return err
	}
	if !worker(rank).IsChief() || s.shards != nil {
		return nil
	}
	if d.HolderIndex(s.config.Peers.Self) < 0 {
		return errUseless
	}
	m := newMembers(len(d.Workers), s.End, nil)
	shards, err := aggregate.New(d, s.config.Peers.Self, m)
	if err != nil {
		return err
	}
	s.force(shards, m, d.FirstStep)
	if d.Checkpoint != "" {
		return s.restore()
	}
	return nil
}

// restore begins to restore all pieces of the task. After the last piece it
// opens the server. The caller holds s.mu and has set s.shards.
func (s *Server) restore() error {
	d := s.shards.Declaration()
	s.restoring = s.shards.Restore()
	if len(s.restoring) > 0 && s.config.Checkpoints == nil {
		return s.blameSelf(fmt.Errorf("is to restore its variables from checkpoint %q and was not configured to", d.Checkpoint))
	}
	if s.connected.closing {
		return nil
	}
	all := s.restoring
	s.running.Go(func() {
		switch err := transition.RestoreAll(s.ctx, d, all, s.config.Checkpoints); {
		case s.ctx.Err() != nil:
		case err != nil:
			s.End(s.blameSelf(err))
		default:
			s.open(true)
		}
	})
	return nil
}

// open lets the workers begin steps, after all of them have declared the same
// training and the first values are present. filled reports that the first
// values have just arrived.
func (s *Server) open(filled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filled = s.filled || filled
	if s.opened || !s.filled || s.connected.closing || len(s.workers.missing()) > 0 {
		return
	}
	if s.workers.differ() != nil {
		return // the worker whose declaration differs is about to end the training
	}
	s.opened = true
	s.late.Stop()
	s.connected.write(s.shards, s.members)
	if s.local.Worker != nil {
		s.local.Worker.Tell(Opened{})
	}
}
