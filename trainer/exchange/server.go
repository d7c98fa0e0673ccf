package exchange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

const (
	purpose        = "owner"
	maxDeclaration = 16 << 20    // bytes of JSON
	firstSilence   = time.Minute // tolerated until a declaration says how much
	farewell       = 2 * time.Second
)

// ServerConfig says who a server is and where workers reach it.
type ServerConfig struct {
	Peers   peers.Config
	Door    *peers.Listener
	Cluster cluster.Spec // where other holders are, to whom rows may move
	// Checkpoints is where the task's shards are saved to and restored from.
	// nil: a save, and a declaration that names a checkpoint, are errors.
	Checkpoints transition.Checkpoints
}

// Serve answers the workers that come to the door for a holder until every
// worker has said goodbye (nil), the chief says that this task holds nothing
// (nil), ctx ends (its error), or training cannot go on: then every worker is
// told why, in bounded time, and the same error is returned, a
// [peers.PeerError] when a worker is to blame.
//
// A door has one server. Workers that come after its end are told so.
func Serve(ctx context.Context, config ServerConfig) error {
	s := newServer(config.Peers)
	s.cluster, s.checkpoints = config.Cluster, config.Checkpoints
	return s.serve(ctx, config.Door)
}

// server is one training on one holder.
type server struct {
	config      peers.Config
	cluster     cluster.Spec
	memory      func() (uint64, error) // that the host has free, in bytes
	self        cluster.Task
	local       *local                 // the worker in the same process, nil: none
	ranks       layout.Range           // whom it serves
	checkpoints transition.Checkpoints // nil: there are none

	restoring []*aggregate.Restoring // pieces; set when the training is declared

	mu       sync.Mutex
	peers    []*peer               // by rank; nil: not there yet
	declared []*layout.Declaration // by rank
	shards   *aggregate.Shards     // nil until the chief has declared
	members  *members              // who hear of their steps
	relay    *relay                // sums do not end here: this server is the first worker of a host; nil: they do
	filled   bool                  // first values are all there, the chief's or a checkpoint's
	opened   bool                  // workers may step
	stopped  []bool                // by rank: takes no further step
	gone     []bool                // by rank: said goodbye
	away     int                   // workers whose goodbye was answered, or that were lost
	losses   int                   // of workers, that the training has borne
	steps    []uint64              // by rank: begun
	closing  bool                  // nobody is let in any more
	epoch    uint32                // of who owns what
	moving   *move                 // to the next one; nil: nobody has said a word of it
	late     *time.Timer
	alone    chan struct{} // closed: only the chief is left
	turned   chan struct{} // a token per worker that came after the end
	ended    chan struct{}
	err      error
	writers  sync.WaitGroup
	life     context.Context
	die      context.CancelCauseFunc
}

func newServer(config peers.Config) *server {
	n := config.Workers
	s := &server{
		config: config, self: config.Self, memory: transition.FreeMemory, ranks: layout.Range{Lo: 0, Hi: n},
		peers: make([]*peer, n), declared: make([]*layout.Declaration, n), stopped: make([]bool, n), gone: make([]bool, n), steps: make([]uint64, n),
		alone:  make(chan struct{}),
		turned: make(chan struct{}, n),
		ended:  make(chan struct{}),
	}
	s.life, s.die = context.WithCancelCause(context.Background())
	if n == 1 {
		close(s.alone)
	}
	return s
}

// take puts shards in force. It needs s.mu if others know of s.
func (s *server) take(e *aggregate.Shards, m *members) {
	s.shards, s.members = e, m
	for rank := range s.steps {
		s.steps[rank] = e.Declaration().FirstStep(rank)
	}
}

func (s *server) serve(ctx context.Context, door *peers.Listener) error {
	door.Handle(purpose, s.meet)
	door.Handle(transition.Purpose, s.receiveRows)
	select {
	case <-ctx.Done():
		s.end(context.Cause(ctx))
	case <-s.ended:
	}
	s.farewell()
	s.linger(ctx)
	return s.err
}

// end ends the training, once, with err or in good order.
func (s *server) end(err error) {
	s.mu.Lock()
	select {
	case <-s.ended:
		s.mu.Unlock()
		return
	default:
	}
	s.err = err
	if s.late != nil {
		s.late.Stop()
	}
	close(s.ended)
	s.die(cmp.Or(err, transition.ErrEnded))
	s.mu.Unlock()
	if s.local != nil && err != nil {
		s.local.failed(err)
	}
}

// lost ends the training because of a peer.
func (s *server) lost(p *peer, err error) {
	s.end(s.guilty(p, err))
}

// guilty makes an error that of a peer, unless it is another's.
func (s *server) guilty(p *peer, err error) error {
	var known *peers.PeerError
	if errors.As(err, &known) {
		return err
	}
	return &peers.PeerError{Task: p.task, Addr: p.addr, Err: peers.Lost(err)}
}

// meet serves a connection to its end.
func (s *server) meet(from peers.Peer) {
	p := &peer{
		server: s, task: from.Task, addr: from.Addr,
		conn: wire.NewConn(from.Conn, s.config.Generation, firstSilence),
		turn: make(chan struct{}, 1),
		gone: make(chan struct{}), known: make(chan struct{}), out: make(chan struct{}),
		copied: make(chan struct{}),
	}
	close(p.copied) // nothing is
	defer p.cut()
	defer close(p.gone)
	if err := s.register(p); err != nil {
		s.refuse(p, p.odd(err))
		return
	}
	err := p.serve()
	if errors.Is(err, errUnsaid) && s.forget(p) {
		p.introduced()
		return
	}
	switch {
	case err == nil:
	case s.spares(p, err):
		s.goOn(p, err)
	default:
		s.lost(p, err)
	}
	p.introduced()
	p.conn.Drain() // what farewell says must not be lost with the connection
}

// refuse tells a worker why it is not let in. It waits a little until that
// has hung up: a close with something unread would take the words back.
func (s *server) refuse(p *peer, why error) {
	s.logf("refused %s from %s: %v", p.task, p.addr, why)
	hangUp := time.AfterFunc(farewell, p.cut)
	defer hangUp.Stop()
	p.tell(why)
	p.conn.Drain()
	select {
	case s.turned <- struct{}{}:
	default: // nobody counts any more
	}
}

func (s *server) logf(format string, args ...any) {
	if s.config.Logf != nil {
		s.config.Logf(slog.LevelWarn, format, args...)
	}
}

// errEnded is what is left to say to a worker after the training.
var errEnded = errors.New("training has ended")

func (s *server) register(p *peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rank := p.task.Index; p.task.Role != cluster.Worker || rank < s.ranks.Lo || rank >= s.ranks.Hi || p.task == s.self {
		return errors.New("it is no worker that has a say here")
	}
	if s.closing {
		return cmp.Or(s.err, errEnded)
	}
	if other := s.peers[p.task.Index]; other != nil {
		return fmt.Errorf("%s is already connected from %s", p.task, other.addr)
	}
	s.peers[p.task.Index] = p
	return nil
}

// forget lets a worker come again whose connection ended before it said
// anything: it may have heard, while it was still dialling, why there will be
// no training. That is for others to tell; if it is dead it will be missed.
func (s *server) forget(p *peer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.peers[p.task.Index] = nil
	return true
}

// farewell tells every peer why the training ended, where it ended badly,
// and hangs up: at once on those that are done, in bounded time on all.
func (s *server) farewell() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	var telling sync.WaitGroup
	for _, p := range s.peers {
		if p == nil {
			continue
		}
		telling.Go(func() {
			hangUp := time.AfterFunc(farewell, p.cut)
			defer hangUp.Stop()
			if s.err != nil {
				p.tell(s.err)
				<-p.gone
			}
			p.cut()
			<-p.gone
		})
	}
	telling.Wait()
	s.writers.Wait()
}

// linger tells workers that come late why a training ended before it began,
// for a short while: they would take a closed door for a dead holder.
func (s *server) linger(ctx context.Context) {
	s.mu.Lock()
	opened, absent := s.opened, 0
	for rank := s.ranks.Lo; rank < s.ranks.Hi; rank++ {
		if s.peers[rank] == nil && worker(rank) != s.self {
			absent++
		}
	}
	s.mu.Unlock()
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	for ; absent > 0 && s.err != nil && !opened; absent-- {
		select {
		case <-s.turned:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func worker(rank int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: rank} }
