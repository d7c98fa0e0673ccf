package ps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/wire"
)

const (
	maxDeclaration = 16 << 20 // bytes of JSON
	maxReport      = 64 << 10
	maxStrangers   = 256         // connections that have not proved themselves yet
	firstSilence   = time.Minute // tolerated until a declaration says how much
	farewell       = 2 * time.Second
)

// ServerConfig says who a server is and whom it serves.
type ServerConfig struct {
	Self       cluster.Task
	Key        cluster.Key
	Generation int
	Workers    int // in the job
	Servers    int // in the job
	// Logf is told what is odd but no reason to end: at most once a minute of
	// strangers that knock, and of each at the level of debugging. It may be
	// called by several goroutines.
	Logf func(level slog.Level, format string, args ...any)
}

// Serve answers workers on ln, which it closes, until every worker has said
// goodbye (nil), ctx ends (its error), or training cannot go on: then every
// worker is told why, in bounded time, and the same error is returned, a
// [PeerError] when a worker is to blame.
func Serve(ctx context.Context, ln net.Listener, config ServerConfig) error {
	s := &server{
		ServerConfig: config,
		peers:        make([]*peer, config.Workers),
		ended:        make(chan struct{}),
		turned:       make(chan struct{}, config.Workers),
		unproved:     strangers{logf: config.Logf},
	}
	defer s.unproved.end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { s.accept(ctx, ln, &running) })
	select {
	case <-ctx.Done():
		s.end(context.Cause(ctx))
	case <-s.ended:
	}
	s.farewell()
	s.linger(ctx)
	cancel()
	ln.Close() // a second close tells nothing
	running.Wait()
	return s.err
}

// server is the state of one training.
type server struct {
	ServerConfig

	mu      sync.Mutex
	peers   []*peer // by rank; nil: not there yet
	store   *Store  // nil until the chief has declared
	filled  bool    // the chief's values are all there
	opened  bool    // workers may step
	left    int     // workers that said goodbye
	closing bool    // nobody is let in any more
	late    *time.Timer
	turned  chan struct{} // a token per worker that came after the end
	ended   chan struct{}
	err     error
	writers sync.WaitGroup

	unproved strangers
}

// end ends the training, once, with err or in good order.
func (s *server) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ended:
	default:
		s.err = err
		if s.late != nil {
			s.late.Stop()
		}
		close(s.ended)
	}
}

// accept takes connections until ln is closed.
func (s *server) accept(ctx context.Context, ln net.Listener, running *sync.WaitGroup) {
	strangers := make(chan struct{}, maxStrangers)
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.Logf(slog.LevelWarn, "accept: %v", err)
			if !pause(ctx, 100*time.Millisecond) {
				return
			}
			continue
		}
		select {
		case strangers <- struct{}{}:
		case <-ctx.Done():
			conn.Close() // nobody is to hear of it
			return
		}
		running.Go(func() { s.meet(ctx, conn, func() { <-strangers }) })
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// meet lets a connection prove itself and then serves it to its end.
func (s *server) meet(ctx context.Context, conn net.Conn, known func()) {
	name, err := cluster.Accept(ctx, conn, s.Key, s.Self.String())
	known()
	if err != nil {
		if ctx.Err() == nil { // else it was this server that ended it
			s.unproved.refused(conn.RemoteAddr(), err)
		}
		conn.Close() // it was never a peer
		return
	}
	task, bad := cluster.ParseTask(name)
	if bad != nil || task.Role != cluster.Worker || task.Index >= s.Workers {
		s.Logf(slog.LevelWarn, "refused %s: %q is no worker of this job", conn.RemoteAddr(), name)
		conn.Close() // likewise
		return
	}
	p := &peer{
		server: s, task: task, addr: conn.RemoteAddr().String(),
		conn: wire.NewConn(conn, s.Generation, firstSilence),
		turn: make(chan struct{}, 1),
		gone: make(chan struct{}),
	}
	defer p.cut()
	defer close(p.gone)
	if err := s.register(p); err != nil {
		s.Logf(slog.LevelWarn, "refused %s: %v", p.addr, err)
		p.tell(err)
		return
	}
	if err := p.serve(); err != nil {
		var known *PeerError
		if !errors.As(err, &known) {
			err = &PeerError{Task: p.task, Addr: p.addr, Err: lost(err)}
		}
		s.end(err)
	}
	p.conn.Drain() // what farewell says must not be lost with the connection
}

func (s *server) register(p *peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		select {
		case s.turned <- struct{}{}:
		default: // nobody counts any more
		}
		return cmp.Or(s.err, errEnded)
	}
	if other := s.peers[p.task.Index]; other != nil {
		return fmt.Errorf("%s is already connected from %s", p.task, other.addr)
	}
	s.peers[p.task.Index] = p
	return nil
}

// declare takes what p is about to train. The chief's word is what the others
// are compared with; whoever is first starts the clock.
func (s *server) declare(p *peer, d Declaration) error {
	if err := d.Check(s.Servers); err != nil {
		return err
	}
	if d.Workers != s.Workers {
		return fmt.Errorf("declares %d workers, the job has %d", d.Workers, s.Workers)
	}
	p.conn.SetSilence(time.Duration(d.SilenceMillis) * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.declared = &d
	if s.late == nil {
		limit := time.Duration(d.StartMillis) * time.Millisecond
		s.late = time.AfterFunc(limit, func() { s.tooLate(limit) })
	}
	if p.task.IsChief() {
		store, err := NewStore(d, s.Self.Index)
		if err != nil {
			return err
		}
		s.store = store
	}
	return s.compare()
}

// compare needs s.mu. Its error blames the first worker that departs.
func (s *server) compare() error {
	chief := s.peers[0]
	if chief == nil || chief.declared == nil {
		return nil
	}
	for _, p := range s.peers[1:] {
		if p == nil || p.declared == nil {
			continue
		}
		if what := chief.declared.Difference(*p.declared); what != "" {
			return &PeerError{Task: p.task, Addr: p.addr,
				Err: fmt.Errorf("declares something else than %s: %s", chief.task, what)}
		}
	}
	return nil
}

// tooLate ends a training that did not begin in time.
func (s *server) tooLate(limit time.Duration) {
	s.mu.Lock()
	opened := s.opened
	var missing []cluster.Task
	for rank, p := range s.peers {
		if p == nil || p.declared == nil {
			missing = append(missing, cluster.Task{Role: cluster.Worker, Index: rank})
		}
	}
	s.mu.Unlock()
	switch {
	case opened:
	case len(missing) == 0:
		s.end(fmt.Errorf("not ready within %v: the chief's first values did not come", limit))
	default:
		s.end(&PeerError{Task: missing[0], Addr: "never seen",
			Err: fmt.Errorf("not ready within %v: no sign of %v", limit, missing)})
	}
}

// open lets the workers step once all of them have declared the same and the
// chief's values are there.
func (s *server) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened || !s.filled {
		return
	}
	for _, p := range s.peers {
		if p == nil || p.declared == nil {
			return
		}
	}
	s.opened = true
	s.late.Stop()
	for _, p := range s.peers {
		p.events = make(chan int, s.store.events())
	}
	for _, p := range s.peers {
		s.writers.Go(p.write)
	}
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
		})
	}
	telling.Wait()
	s.writers.Wait()
}

// linger tells workers that come late why a training ended before it began,
// for a short while: they would take a closed door for a dead server.
func (s *server) linger(ctx context.Context) {
	s.mu.Lock()
	opened, absent := s.opened, 0
	for _, p := range s.peers {
		if p == nil {
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
