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
	maxWaiting  = 8                      // maximum number of connections of one task that wait for a handler
	acceptPause = 100 * time.Millisecond // pause after an error of Accept
)

// Peer is a connection to another task that has proved its identity.
type Peer struct {
	Task cluster.Task
	Addr string // network address of the other end, for error messages
	Conn net.Conn
}

// Config describes this task and its job. The Listener and all dialled
// connections of the task use the same Config.
type Config struct {
	Self       cluster.Task
	Key        cluster.Key // secret key with which tasks of this generation of the job prove that they belong to it
	TLS        bool        // encrypt connections between tasks on different hosts
	Generation int         // number of restarts of the job so far, which every frame carries
	Workers    int         // number of workers in the job; a worker with a higher index is refused
	Servers    int         // number of ps tasks in the job; a ps with a higher index is refused
	// Logf logs unusual events that do not stop the task. At slog.LevelInfo
	// there is at most one line per minute about unauthenticated connections;
	// at slog.LevelDebug there is a line for each. Several goroutines may call
	// Logf. If Logf is nil, nothing is logged.
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

// Listener accepts a task's connections, checks who has dialled, and passes
// each connection to the handler of its purpose. Any goroutine may call its
// methods.
type Listener struct {
	config       Config
	ln           net.Listener
	cancel       context.CancelFunc // cancels the context of goroutines that accept connections or check proofs
	ended        chan struct{}      // closed once every goroutine has returned
	running      sync.WaitGroup     // goroutines that accept connections, check proofs or run handlers
	gate         *channel.Gate
	unproved     notices // log lines about connections that did not prove the job's secret
	refused      notices // log lines about tasks that proved the secret but were refused
	acceptErrors notices // log lines about errors of Accept

	mu       sync.Mutex
	closed   bool                             // true once Close was called; new connections are then refused
	handlers map[string]func(Peer)            // indexed by purpose: the function that Handle has set
	waiting  map[cluster.Task]map[string]Peer // indexed by task and purpose: connections that arrived before Handle was called for their purpose
}

// Listen starts to accept connections on ln and returns their Listener, which
// owns ln.
func Listen(ln net.Listener, c Config) *Listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{
		config: c, cancel: cancel,
		ended:    make(chan struct{}),
		handlers: map[string]func(Peer){},
		waiting:  map[cluster.Task]map[string]Peer{},
		unproved: notices{config: c, level: slog.LevelInfo, one: "refused a connection that did not prove the job's secret, from %s",
			many: "refused %d connections that did not prove the job's secret, the last from %s"},
		refused:      notices{config: c, level: slog.LevelWarn, one: "refused %s", many: "refused %d connections of tasks, the last %s"},
		acceptErrors: notices{config: c, level: slog.LevelWarn, one: "accept: %s", many: "accept failed %d times, the last: %s"},
	}
	l.gate = c.gate()
	l.ln = l.gate.Listener(ln)
	l.running.Go(func() { l.accept(ctx) })
	return l
}

// Addr returns the address on which the Listener accepts connections.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Handle makes the Listener call serve on a new goroutine for every connection
// of the purpose, including connections that wait already. serve must close
// the connection. A later call of Handle for the same purpose replaces serve.
// If serve is nil, new connections of the purpose wait for a later call of
// Handle.
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

// Close stops accepting, closes connections that wait for a handler, and waits
// until all serve functions have returned. The caller must make them return. A
// serve function must not call Close.
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
			p.Conn.Close() // an error does not matter: the connection was never used
		}
	}
	l.waiting = nil
	l.mu.Unlock()
	l.cancel()
	err := l.ln.Close()
	for _, n := range []*notices{&l.unproved, &l.refused, &l.acceptErrors} {
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
			l.acceptErrors.note(err.Error())
			pause(ctx, acceptPause) // if ctx ends, pause returns early and the loop's condition ends the loop
			continue
		}
		l.running.Go(func() { l.authenticate(ctx, conn) })
	}
}

// authenticate checks the proof of a new connection and passes the connection to its
// handler.
func (l *Listener) authenticate(ctx context.Context, conn net.Conn) {
	protected, name, err := l.gate.Accept(ctx, conn)
	purpose := purposeOf(name)
	addr := conn.RemoteAddr().String()
	switch {
	case err == nil:
		if err = l.dispatch(name, purpose, addr, protected); err == nil {
			return
		}
		l.config.logf(slog.LevelDebug, "refused %s: %v", addr, err)
		l.refused.note(fmt.Sprintf("%s: %v", addr, err))
	case ctx.Err() == nil: // if ctx has ended, this Listener itself has stopped the check of the proof
		l.config.logf(slog.LevelDebug, "refused %s: %s", addr, unproved(err))
		if !endedEarly(err) {
			l.unproved.note(host(addr))
		}
	}
	conn.Close() // the connection was refused, so no handler will close it
}

// dispatch passes an authenticated connection to the handler of its purpose. If no
// handler is set yet, the connection waits for one.
func (l *Listener) dispatch(name, purpose, addr string, conn net.Conn) error {
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

// wait stores a connection until Handle is called for its purpose. The caller
// holds l.mu.
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

// noticeEvery is the minimum time between two log lines about unauthenticated
// connections. Otherwise anyone who reaches the port could flood the log.
const noticeEvery = time.Minute

// notices logs an event that an unauthenticated peer can cause as often as it
// likes. It logs the first event at once. It logs later ones together, in one
// line per minute. Any goroutine may call its methods.
type notices struct {
	config Config
	level  slog.Level
	one    string // format of the log line for a single event; its argument is the event's description
	many   string // format of the log line for several events; its arguments are their number and the description of the last one

	mu    sync.Mutex
	count int         // number of events since the last log line
	last  string      // description of the last event
	timer *time.Timer // fires when the next line may be logged; nil if a line may be logged now
	ended bool
}

// note records an event. The parameter last is the event's description.
func (n *notices) note(last string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count++
	n.last = last
	if n.timer == nil && !n.ended {
		n.print()
	}
}

// print logs one line that counts the events since the previous line, and
// starts the timer for the next line. The caller holds n.mu.
func (n *notices) print() {
	if n.count == 1 {
		n.config.logf(n.level, n.one, n.last)
	} else {
		n.config.logf(n.level, n.many, n.count, n.last)
	}
	n.count = 0
	n.timer = time.AfterFunc(noticeEvery, n.minute)
}

// minute logs the events of the last minute, if there were any.
func (n *notices) minute() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timer = nil
	if n.count > 0 && !n.ended {
		n.print()
	}
}

// end stops logging: later events are ignored.
func (n *notices) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	if n.timer != nil {
		n.timer.Stop()
	}
}

// host returns addr without its port.
func host(addr string) string {
	if h, _, err := net.SplitHostPort(addr); err == nil {
		return h
	}
	return addr
}

// unproved describes how a connection failed to prove the job's secret, for a
// log line.
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

// endedEarly reports whether a connection ended before the peer had proved the
// job's secret. This is no attack: it also happens if a task dies or gives up,
// or if someone scans the host's ports.
func endedEarly(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}
