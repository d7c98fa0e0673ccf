package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

const (
	maxWaiting = 8                      // connections of one task that wait for a handler
	acceptWait = 100 * time.Millisecond // after a failed accept
)

// Peer is a connection to a task that has proved itself.
type Peer struct {
	Task cluster.Task
	Addr string // of the other end, for messages
	Conn net.Conn
}

// Config says who a task is and to which job it belongs. Every Listener and
// every dialled connection of the task uses the same Config.
type Config struct {
	Self       cluster.Task
	Key        cluster.Key // of this generation
	Generation int         // for the frames that follow; the key proves it
	Workers    int         // in the job; a worker of a higher index is refused
	Servers    int         // ps tasks in the job; one of a higher index is refused
	// Logf receives what is odd but no reason to stop. At slog.LevelInfo it
	// gets at most one line a minute about unauthenticated connections, at
	// slog.LevelDebug one line for each. Several goroutines may call it; nil
	// drops the lines.
	Logf func(level slog.Level, format string, args ...any)
}

func (c Config) logf(level slog.Level, format string, args ...any) {
	if c.Logf != nil {
		c.Logf(level, format, args...)
	}
}

// has reports whether t is a task of the job.
func (c Config) has(t cluster.Task) bool {
	return t.Index < c.Workers && t.Role == cluster.Worker || t.Index < c.Servers && t.Role == cluster.PS
}

// Listener accepts the connections that come to a task and hands them out by
// purpose. Any goroutine may call its methods.
type Listener struct {
	config   Config
	ln       net.Listener
	leave    context.CancelFunc // ends accepting and proofs
	ended    chan struct{}      // closed once every goroutine has returned
	running  sync.WaitGroup     // accepting, proofs and handlers
	backlog  backlog
	unproved notices // unauthenticated connections
	refused  notices // proved connections that were refused
	troubled notices // failed accepts

	mu       sync.Mutex
	closed   bool
	handlers map[string]func(Peer)            // by purpose
	waiting  map[cluster.Task]map[string]Peer // by purpose
}

// Listen begins to accept connections on ln, which the Listener owns from now
// on.
func Listen(ln net.Listener, c Config) *Listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{
		config: c, ln: ln, leave: cancel,
		ended:    make(chan struct{}),
		handlers: map[string]func(Peer){},
		waiting:  map[cluster.Task]map[string]Peer{},
		unproved: notices{config: c, level: slog.LevelInfo, one: "refused a connection that did not prove the job's secret, from %s",
			many: "refused %d connections that did not prove the job's secret, the last from %s"},
		refused:  notices{config: c, level: slog.LevelWarn, one: "refused %s", many: "refused %d connections of tasks, the last %s"},
		troubled: notices{config: c, level: slog.LevelWarn, one: "accept: %s", many: "accept failed %d times, the last: %s"},
	}
	l.running.Go(func() { l.accept(ctx) })
	return l
}

// Addr is the address at which the Listener accepts connections.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Handle makes the Listener call serve with every connection of the purpose,
// each time on a new goroutine. Connections that wait for the purpose are
// served too. serve owns the connection. A later Handle of the purpose
// replaces serve; with a nil serve, connections of the purpose wait again.
func (l *Listener) Handle(purpose string, serve func(Peer)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if serve == nil {
		delete(l.handlers, purpose)
		return
	}
	l.handlers[purpose] = serve
	for _, of := range l.waiting {
		if p, ok := of[purpose]; ok {
			delete(of, purpose)
			l.running.Go(func() { serve(p) })
		}
	}
}

// Close stops accepting, closes the connections that wait for a handler, and
// waits until the serve functions have returned. The caller must make them
// return. A serve function must not call Close.
func (l *Listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		<-l.ended
		return nil
	}
	l.closed = true
	for _, of := range l.waiting {
		for _, p := range of {
			p.Conn.Close() // nobody will ever look at it
		}
	}
	l.waiting = nil
	l.mu.Unlock()
	l.leave()
	err := l.ln.Close()
	for _, n := range []*notices{&l.unproved, &l.refused, &l.troubled} {
		n.end()
	}
	l.running.Wait()
	close(l.ended)
	return err
}

// accept takes connections until the socket is closed.
func (l *Listener) accept(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.troubled.note(err.Error())
			pause(ctx, acceptWait) // the loop looks at ctx
			continue
		}
		if !l.backlog.enter(ctx, conn) {
			conn.Close() // the Listener ends
			return
		}
		l.running.Go(func() { l.meet(ctx, conn) })
	}
}

// meet lets a connection prove itself and passes it on.
func (l *Listener) meet(ctx context.Context, conn net.Conn) {
	name, purpose, err := prove(ctx, conn, l.config)
	l.backlog.exit(conn)
	addr := conn.RemoteAddr().String()
	switch {
	case err == nil:
		if err = l.pass(name, purpose, addr, conn); err == nil {
			return
		}
		l.config.logf(slog.LevelDebug, "refused %s: %v", addr, err)
		l.refused.note(fmt.Sprintf("%s: %v", addr, err))
	case ctx.Err() == nil: // otherwise this Listener ended the proof
		l.config.logf(slog.LevelDebug, "refused %s: %s", addr, unproved(err))
		if !unclaimed(err) {
			l.unproved.note(host(addr))
		}
	}
	conn.Close() // no handler has it
}

// pass gives a proved connection to the handler of its purpose, or lets it
// wait for one.
func (l *Listener) pass(name, purpose, addr string, conn net.Conn) error {
	task, err := l.config.admit(name, purpose)
	if err != nil {
		return err
	}
	p := Peer{Task: task, Addr: addr, Conn: conn}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("the task is ending")
	}
	if serve := l.handlers[purpose]; serve != nil {
		l.running.Go(func() { serve(p) })
		return nil
	}
	return l.wait(p, purpose)
}

// wait keeps a connection for a later Handle. The caller holds l.mu.
func (l *Listener) wait(p Peer, purpose string) error {
	of := l.waiting[p.Task]
	if of == nil {
		of = map[string]Peer{}
		l.waiting[p.Task] = of
	}
	if other, ok := of[purpose]; ok {
		return fmt.Errorf("%s already waits for %q, from %s", p.Task, purpose, other.Addr)
	}
	if len(of) >= maxWaiting {
		return fmt.Errorf("%s already waits for %d other purposes", p.Task, len(of))
	}
	of[purpose] = p
	return nil
}
