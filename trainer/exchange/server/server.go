// Package server implements the shard holder's side of the exchange, see
// package exchange. A Server serves the workers that connect to one task. The
// task is a parameter server, a worker that holds shards, or the first worker
// of a host. The first worker of a host uses package localsum to add the
// gradients of the host's workers and forward the sums.
//
// A Server runs one training. It has a peer (a connected worker) for each
// worker. One goroutine of the peer reads the worker's frames, and another
// sends new values and the outcome of each step. The type workers records the
// progress of all workers. A migration moves variables to other shard holders.
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

const firstSilence = time.Minute // longest time that a worker may send nothing before its declaration sets its own limit

// Config describes a Server: its task, its listener, and the addresses of the
// other shard holders (tasks that store parts of variables).
type Config struct {
	Peers    peers.Config
	Listener *peers.Listener // accepts connections of workers; nil means that no worker connects from outside this process
	Cluster  cluster.Spec    // addresses of the other shard holders (tasks that store parts of variables), to which rows may move
	// Checkpoints saves and restores the shards of the task. With nil
	// Checkpoints, saving and restoring a checkpoint fail.
	Checkpoints transition.Checkpoints
	// Memory returns the free memory of the host in bytes; nil means
	// transition.FreeMemory.
	Memory func() (uint64, error)
}

// Worker is the worker in the same process as a Server, if there is one. Its
// methods must not block.
type Worker interface {
	// Tell delivers an event to the worker: an event of a step, Opened or
	// Moved.
	Tell(e aggregate.Event)
	// Fail ends the worker's training.
	Fail(err error)
}

// Opened is the event that the training has begun: workers may take steps.
type Opened struct{}

// Moved is the event that all variables that change their shard holder (the
// task that stores them) have arrived there. Shards are the shards that this
// task now stores. It is nil if the server stores none and only adds the
// gradients of its host's workers.
type Moved struct{ Shards *aggregate.Shards }

// Counted implements aggregate.Event. It returns false because a worker does
// not get Opened in every step.
func (Opened) Counted() bool { return false }

// Counted implements aggregate.Event. It returns false because a worker does
// not get Moved in every step.
func (Moved) Counted() bool { return false }

// Local describes the worker in the same process as a Server.
type Local struct {
	Worker      Worker
	Declaration *layout.Declaration
	Values      func(layout.Piece) []byte // returns the slice in which the worker stores a piece of a dense variable
	Aggregator  *localsum.Aggregator      // adds the gradients of the host's workers; nil if the server holds shards or only refuses workers
}

// Serve serves the workers that connect to a shard holder (a task that stores
// parts of variables). It returns nil after every worker has said goodbye, or
// after the chief (worker 0) has declared that this task holds no shards. If
// ctx ends or the training fails, Serve sends the reason to every worker and
// returns it. The error is a [peers.PeerError] if a worker is to blame.
//
// A listener can serve only one training. It refuses workers that connect
// after the training has ended.
func Serve(ctx context.Context, config Config) error { return New(config).Run(ctx) }

// Server serves one training on one shard holder (a task that stores parts of
// variables). Its methods are safe for concurrent use.
type Server struct {
	config Config
	holder transition.Config // the part of config that package transition needs
	local  Local             // the worker in the same process; the zero value means that there is no such worker
	ctx    context.Context   // canceled when the training ends; its cause is the reason
	cancel context.CancelCauseFunc

	alone   chan struct{}  // closed after all workers except the chief have left
	running sync.WaitGroup // counts the goroutines of the server

	mu        sync.Mutex // guards the fields below, and the fields of connections and migration
	connected *connections
	migration *migration
	workers   workers
	shards    *aggregate.Shards      // nil until the chief has sent its declaration
	members   *members               // workers that receive the events of the shards
	restoring []*aggregate.Restoring // parts of variables to restore from a checkpoint; nil if training does not resume from one
	filled    bool                   // true if the variables' initial values have arrived, from the chief or from a checkpoint
	opened    bool                   // true if workers may begin steps
	late      *time.Timer            // timer that ends the training if not all workers are ready in time; nil before the first declaration
}

// New returns a Server that receives the declaration (what is trained, and
// how) from the workers.
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
	s.connected = &connections{server: s, peers: make([]*peer, n), refusals: make(chan struct{}, n)}
	s.migration = &migration{server: s}
	if n == 1 {
		close(s.alone)
	}
	return s
}

// NewLocal returns the server in the process of a worker. If local.Aggregator
// is set, the server adds the gradients of the host's workers. Otherwise it
// holds the worker's shards. If the worker holds no shards, the server only
// refuses workers that connect to it by mistake, and reports how their
// declarations differ.
func NewLocal(config Config, local Local) (*Server, error) {
	s := New(config)
	s.local = local
	self, d := config.Peers.Self, local.Declaration
	s.workers.declare(self.Index, d) // cannot fail: declare compares d with other declarations, and none has arrived yet
	m := newMembers(len(d.Workers), s.End, local.Values)
	m.tell[self.Index] = local.Worker.Tell
	switch {
	case local.Aggregator != nil:
		m.tell[self.Index] = func(aggregate.Event) {} // the first worker of the host calls the aggregator directly and needs no events
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

// Run serves workers until the training ends. It returns nil after a
// successful training, and otherwise the error that ended it. Call Run only
// once.
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

// End ends the training. A nil err means success. Only the first call has an
// effect.
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

// Err returns the error that ended the training. It returns nil while training
// continues and after a successful training.
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

// logLater logs the loss of a worker after one second. If the training fails
// within that second, logLater logs nothing, because the loss is then only a
// consequence of the failure.
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

// Shards returns the current shards, or nil if the chief has not sent its
// declaration yet.
func (s *Server) Shards() *aggregate.Shards {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shards
}

// force makes e the current shards. The function step returns the step at
// which the worker with the given rank continues. The caller holds s.mu,
// unless no other goroutine uses s yet.
func (s *Server) force(e *aggregate.Shards, m *members, step func(rank int) uint64) {
	s.shards, s.members = e, m
	s.workers.continueAt(step)
}

// start accepts connections of workers, starts the timer of startClock, and
// begins to restore a checkpoint if the declaration names one.
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
		s.open(false) // this worker may be the only one; then training can begin at once
	}
}

// startClock starts a timer that ends the training if workers are not ready
// within d.Start(). A worker that holds no shards waits for no other worker
// and starts no timer. The caller holds s.mu.
func (s *Server) startClock(d *layout.Declaration) {
	if s.late == nil && (s.local.Worker == nil || s.shards != nil) {
		s.late = time.AfterFunc(d.Start(), func() { s.tooLate(d.Start()) })
	}
}

// tooLate ends a training whose workers were not ready in time. The error
// names a missing worker, or says that the initial values of the variables are
// missing.
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
		s.End(fmt.Errorf("not ready within %v: the chief's first values did not arrive", limit))
	default:
		s.End(&peers.PeerError{Task: missing[0], Addr: "never seen",
			Err: fmt.Errorf("not ready within %v: no sign of %v", limit, missing)})
	}
}

// blameSelf wraps err in a PeerError that names this task as the one to blame.
// The other tasks then report it as the cause.
func (s *Server) blameSelf(err error) error {
	self := s.config.Peers.Self
	return &peers.PeerError{Task: self, Addr: s.config.Cluster.Addr(self), Err: err}
}

// declare records a worker's declaration (what it trains, and how), which must
// match the chief's. The first declaration starts the timer of startClock. The
// error is errNoPieces if the chief's declaration assigns no pieces of
// variables to this task.
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
		return errNoPieces
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

// restore begins to restore all parts of variables that this task stores from
// the checkpoint. After the last part it calls open. The caller holds s.mu and
// has set s.shards.
func (s *Server) restore() error {
	d := s.shards.Declaration()
	s.restoring = s.shards.Restore()
	if len(s.restoring) > 0 && s.config.Checkpoints == nil {
		return s.blameSelf(fmt.Errorf("cannot restore its variables from checkpoint %q: no checkpoint store is configured", d.Checkpoint))
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

// open lets workers begin steps, if all workers have sent equal declarations
// and the initial values of the variables are present. filled is true if the
// caller has just received those values.
func (s *Server) open(filled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filled = s.filled || filled
	if s.opened || !s.filled || s.connected.closing || len(s.workers.missing()) > 0 {
		return
	}
	if s.workers.differ() != nil {
		return // another goroutine has received the unequal declaration (a worker's list of variables) and ends the training
	}
	s.opened = true
	s.late.Stop()
	s.connected.write(s.shards, s.members)
	if s.local.Worker != nil {
		s.local.Worker.Tell(Opened{})
	}
}
