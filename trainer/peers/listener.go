package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/cluster/channel"
)

const (
	maxWaiting = 8                      // connections of one task that wait for a handler
	acceptWait = 100 * time.Millisecond // after a failed accept
)

// Peer is a connection to a task that has proved itself.
type Peer struct {
	Task cluster.Task
	Addr string // address of the other end, for messages
	Conn net.Conn
}

// Config says who a task is and to which job it belongs. Every Listener and
// every dialled connection of the task uses the same Config.
type Config struct {
	Self       cluster.Task
	Key        cluster.Key // proves that the task belongs to this generation of the job
	TLS        bool        // encrypt what leaves the host
	Generation int         // number of the job's generation, which the frames of a connection carry
	Workers    int         // number of workers in the job; a worker with a higher index is refused
	Servers    int         // number of ps tasks in the job; a ps with a higher index is refused
	// Logf gets lines about events that are odd but do not stop the task. At
	// slog.LevelInfo there is at most one line a minute about unauthenticated
	// connections, at slog.LevelDebug one line for each. Several goroutines may
	// call Logf. nil drops the lines.
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
	running  sync.WaitGroup     // goroutines that accept, prove and serve
	gate     *channel.Gate
	unproved notices // unauthenticated connections
	refused  notices // proved connections that were refused
	troubled notices // failed accepts

	mu       sync.Mutex
	closed   bool                             // Close was called
	handlers map[string]func(Peer)            // by purpose
	waiting  map[cluster.Task]map[string]Peer // by purpose: connections that no handler has taken yet
}

// Listen begins to accept connections on ln, which the Listener owns from now
// on.
func Listen(ln net.Listener, c Config) *Listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{
		config: c, leave: cancel,
		ended:    make(chan struct{}),
		handlers: map[string]func(Peer){},
		waiting:  map[cluster.Task]map[string]Peer{},
		unproved: notices{config: c, level: slog.LevelInfo, one: "refused a connection that did not prove the job's secret, from %s",
			many: "refused %d connections that did not prove the job's secret, the last from %s"},
		refused:  notices{config: c, level: slog.LevelWarn, one: "refused %s", many: "refused %d connections of tasks, the last %s"},
		troubled: notices{config: c, level: slog.LevelWarn, one: "accept: %s", many: "accept failed %d times, the last: %s"},
	}
	l.gate = c.gate()
	l.ln = l.gate.Listener(ln)
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
		l.running.Go(func() { l.meet(ctx, conn) })
	}
}

// meet lets a connection prove itself and passes it on.
func (l *Listener) meet(ctx context.Context, conn net.Conn) {
	protected, name, err := l.gate.Accept(ctx, conn)
	purpose := purposeOf(name)
	addr := conn.RemoteAddr().String()
	switch {
	case err == nil:
		if err = l.pass(name, purpose, addr, protected); err == nil {
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

// noticeEvery bounds the lines about unauthenticated connections: whoever
// reaches the port could otherwise fill the terminal.
const noticeEvery = time.Minute

// notices logs an event that an unauthenticated peer can repeat at will: the
// first one at once, later ones once a minute in one line. Any goroutine may
// call its methods.
type notices struct {
	config Config
	level  slog.Level
	one    string // format of the line for one event; gets its description
	many   string // format of the line for several events; gets their number and the last description

	mu    sync.Mutex
	count int         // number of events since the last line
	last  string      // description of the last event
	timer *time.Timer // writes the next line; nil if none is due
	ended bool
}

// note counts one more event, which last describes.
func (n *notices) note(last string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count++
	n.last = last
	if n.timer == nil && !n.ended {
		n.print()
	}
}

// print logs one line and starts the minute. The caller holds n.mu.
func (n *notices) print() {
	if n.count == 1 {
		n.config.logf(n.level, n.one, n.last)
	} else {
		n.config.logf(n.level, n.many, n.count, n.last)
	}
	n.count = 0
	n.timer = time.AfterFunc(noticeEvery, n.minute)
}

// minute logs the events since the last line.
func (n *notices) minute() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timer = nil
	if n.count > 0 && !n.ended {
		n.print()
	}
}

// end drops every later event.
func (n *notices) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	if n.timer != nil {
		n.timer.Stop()
	}
}

// host is addr without its port.
func host(addr string) string {
	if h, _, err := net.SplitHostPort(addr); err == nil {
		return h
	}
	return addr
}

// unproved says in words how a connection failed to prove itself.
func unproved(err error) string {
	switch {
	case errors.Is(err, cluster.ErrProof):
		return err.Error()
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, net.ErrClosed):
		return "it did not prove the job's secret in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it hung up before it proved the job's secret"
	}
	return "connection lost before it proved the job's secret"
}

// unclaimed reports whether a connection ended before the peer claimed to be
// anyone. A task that died or gave up does that, and so does a port scan.
func unclaimed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}
