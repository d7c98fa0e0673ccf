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
	"log/slog"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
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
