// Package server is the side of a shard holder: it answers the workers that
// come to a task for the shards it holds. The task is a parameter server, a
// worker that holds shards, or the first worker of a host, whose package relay
// passes on what the workers of the host contribute.
//
// A Server is one training on one task. Per worker it has a peer: one goroutine
// reads what the worker sends, and a writer sends what becomes of each step.
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
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/relay"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
)

const firstSilence = time.Minute // tolerated until a declaration says how much

// Config says who a shard holder is and where workers reach it.
type Config struct {
	Peers    peers.Config
	Listener *peers.Listener // nil: no worker comes from elsewhere
	Cluster  cluster.Spec    // where other holders are, to whom rows may move
	// Checkpoints is where the task's shards are saved to and restored from.
	// nil: a save, and a declaration that names a checkpoint, are errors.
	Checkpoints transition.Checkpoints
	// Memory returns the bytes that the host has free; nil:
	// transition.FreeMemory.
	Memory func() (uint64, error)
}

// Worker is a worker in the same process as a Server. Its methods never block.
type Worker interface {
	// Tell gives it an event of a step, Opened or Moved.
	Tell(e aggregate.Event)
	// Fail ends the worker's training.
	Fail(err error)
}

// Opened is the event that workers may step.
type Opened struct{}

// Moved is the event that all variables are with their new holders.
type Moved struct{ Shards *aggregate.Shards } // that are here now; nil: the server of a Relay, which has none

// Counted implements aggregate.Event.
func (Opened) Counted() bool { return false }

// Counted implements aggregate.Event.
func (Moved) Counted() bool { return false }

// Local describes the worker in the same process.
type Local struct {
	Worker      Worker
	Declaration *layout.Declaration
	Values      func(layout.Piece) []byte // where the values of a dense piece are
	Relay       *relay.Relay              // the server adds for the workers of the host; nil: it holds shards, or nothing
}

// Serve answers the workers that come to the listener for a holder until every
// worker has said goodbye (nil), the chief says that this task holds nothing
// (nil), ctx ends (its error), or training cannot go on. Then it tells every
// worker why, in bounded time, and returns the same error, a [peers.PeerError]
// when a worker is to blame.
//
// A listener has one server. Workers that come after its end are told so.
func Serve(ctx context.Context, config Config) error { return New(config).Run(ctx) }

// Server is one training on one shard holder. Any goroutine may call its
// methods.
type Server struct {
	config Config
	holder transition.Config // the holder as transitions know it
	local  Local             // the worker in the same process; no Worker: there is none
	ctx    context.Context   // ends with the training; its cause says why
	cancel context.CancelCauseFunc

	alone   chan struct{} // closed when only the chief is left
	running sync.WaitGroup

	mu        sync.Mutex // guards all below, the connections and the mover included
	connected *connections
	mover     *mover
	roll      roll
	shards    *aggregate.Shards      // nil until the chief has declared
	members   *members               // who hear of their steps
	restoring []*aggregate.Restoring // pieces; set when the training is declared
	filled    bool                   // first values are all there, the chief's or a checkpoint's
	opened    bool                   // workers may step
	late      *time.Timer            // ends a training that does not begin in time
}

// New makes a server that learns from the workers what is trained.
func New(config Config) *Server {
	n := config.Peers.Workers
	s := &Server{
		config: config, holder: transition.Config{Peers: config.Peers, Cluster: config.Cluster, Memory: config.Memory},
		roll: newRoll(config.Peers.Self, n), alone: make(chan struct{}),
	}
	if config.Memory == nil {
		s.holder.Memory = transition.FreeMemory
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.connected = &connections{server: s, peers: make([]*peer, n), turned: make(chan struct{}, n)}
	s.mover = &mover{server: s}
	if n == 1 {
		close(s.alone)
	}
	return s
}

// NewLocal makes the server of a worker: one of the worker's shards, or of what
// its host contributes. If the worker holds nothing, the server tells workers
// that take it for a holder that they disagree.
func NewLocal(config Config, local Local) (*Server, error) {
	s := New(config)
	s.local = local
	self, d := config.Peers.Self, local.Declaration
	s.roll.declare(self.Index, d) // it is the first, so it differs from none
	m := newMembers(len(d.Workers), s.End, local.Values)
	m.hears(self.Index, local.Worker.Tell)
	switch {
	case local.Relay != nil:
		m.hears(self.Index, func(aggregate.Event) {}) // it knows
		s.roll.limit(d.HostOf(self.Index), self.Index)
		s.force(local.Relay.Attach(self, m), m, d.FirstStep)
		s.filled = true
	case d.HolderIndex(self) >= 0:
		shards, err := aggregate.New(d, self, m)
		if err != nil {
			return nil, err
		}
		s.force(shards, m, d.FirstStep)
		s.filled = self.IsChief() && d.Checkpoint == ""
	default:
		s.roll.limit(s.roll.ranks, self.Index)
	}
	return s, nil
}

// Run serves until the training has ended, and returns why it has; nil: in good
// order. It must be called once.
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

// End ends the training, once, with err or in good order.
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

// Err returns why the training has ended; nil: it has not, or in good order.
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

// logLater logs a line unless the training ends badly within a moment: then the
// loss is a part of that, as when all workers are told to stop.
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

// Shards returns the shards that are in force; nil: none yet.
func (s *Server) Shards() *aggregate.Shards {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shards
}

// force puts shards in force, whose workers continue at a step. It needs s.mu if others know of s.
func (s *Server) force(e *aggregate.Shards, m *members, step func(rank int) uint64) {
	s.shards, s.members = e, m
	s.roll.continueAt(step)
}

// start lets workers come.
func (s *Server) start() {
	purpose, brings := message.ToHolder, true
	if d := s.local.Declaration; d != nil {
		s.mu.Lock()
		s.startClock(d)
		holds := s.shards != nil && s.local.Relay == nil
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
	if s.local.Relay != nil {
		purpose = message.ToFirst
	}
	if l := s.config.Listener; l != nil {
		l.Handle(purpose, s.connected.meet)
		if brings {
			l.Handle(transition.Purpose, s.mover.receive)
		}
	}
	if s.local.Worker != nil && s.Shards() != nil {
		s.open(false) // this worker may be the only one
	}
}

// startClock ends the training if it does not begin in time. It needs s.mu. A
// worker that holds nothing waits for no other.
func (s *Server) startClock(d *layout.Declaration) {
	if s.late == nil && (s.local.Worker == nil || s.shards != nil) {
		s.late = time.AfterFunc(d.Start(), func() { s.tooLate(d.Start()) })
	}
}

// tooLate ends a training that did not begin in time.
func (s *Server) tooLate(limit time.Duration) {
	s.mu.Lock()
	opened, missing := s.opened, s.roll.missing()
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

// blameSelf makes err one of this task itself, which others hear of.
func (s *Server) blameSelf(err error) error {
	self := s.config.Peers.Self
	return &peers.PeerError{Task: self, Addr: s.config.Cluster.Addr(self), Err: err}
}

// declare takes what a worker is about to train. The chief's declaration is
// what the others are compared with; the first one starts the clock. The
// error is errUseless if the chief has no use for this task.
func (s *Server) declare(rank int, d *layout.Declaration) error {
	if err := d.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(d.Workers) != len(s.roll.gone) {
		return fmt.Errorf("declares %d workers, the job has %d", len(d.Workers), len(s.roll.gone))
	}
	s.startClock(d)
	if err := s.roll.declare(rank, d); err != nil {
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

// restore begins to restore all that the task holds; workers are let in when it
// is there. It needs s.mu, and shards.
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

// open lets the workers step once all of them have declared the same and the
// first values are there; filled: they have just come.
func (s *Server) open(filled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filled = s.filled || filled
	if s.opened || !s.filled || s.connected.closing || len(s.roll.missing()) > 0 {
		return
	}
	if s.roll.differ() != nil {
		return // the worker whose declaration differs is about to end the training
	}
	s.opened = true
	s.late.Stop()
	s.connected.write(s.shards, s.members)
	if s.local.Worker != nil {
		s.local.Worker.Tell(Opened{})
	}
}
