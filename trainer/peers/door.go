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
	maxWaiting = 8 // connections per task that nobody handles yet
	acceptWait = 100 * time.Millisecond
)

// Peer is a connection to a task that has proved itself.
type Peer struct {
	Task cluster.Task
	Addr string // the other end's, for messages
	Conn net.Conn
}

// Config says who a task is and of which job. It is used as it is by every
// Door and Dial of the task.
type Config struct {
	Self       cluster.Task
	Key        cluster.Key // of this generation
	Generation int         // for the frames that follow; the key proves it
	Workers    int         // in the job; a worker of a higher index is refused
	Servers    int         // ps tasks in the job; likewise
	// Logf is told what is odd but no reason to end: at most once a minute of
	// strangers that knock, and of each at the level of debugging. It may be
	// called by several goroutines and may be nil.
	Logf func(level slog.Level, format string, args ...any)
}

func (c Config) logf(level slog.Level, format string, args ...any) {
	if c.Logf != nil {
		c.Logf(level, format, args...)
	}
}

// counted logs what happened once or many times.
func (c Config) counted(level slog.Level, one, many string) func(int, string) {
	return func(n int, last string) {
		if n == 1 {
			c.logf(level, one, last)
			return
		}
		c.logf(level, many, n, last)
	}
}

// has reports whether t is a task of the job.
func (c Config) has(t cluster.Task) bool {
	return t.Index < c.Workers && t.Role == cluster.Worker || t.Index < c.Servers && t.Role == cluster.PS
}

// Door takes the connections that come to a task and hands them out by
// purpose. Its methods may be called by any goroutine.
type Door struct {
	config   Config
	ln       net.Listener
	leave    context.CancelFunc // ends accepting and proofs
	ended    chan struct{}      // closed once everything has returned
	running  sync.WaitGroup     // accepting, proofs and handlers
	hall     hall
	unproved seldom
	refused  seldom
	troubled seldom

	mu       sync.Mutex
	closed   bool
	handlers map[string]func(Peer)
	waiting  map[cluster.Task]map[string]Peer // by purpose
}

// Open begins to accept connections on ln, which the door owns from now on.
func Open(ln net.Listener, c Config) *Door {
	ctx, cancel := context.WithCancel(context.Background())
	d := &Door{
		config: c, ln: ln, leave: cancel,
		ended:    make(chan struct{}),
		handlers: map[string]func(Peer){},
		waiting:  map[cluster.Task]map[string]Peer{},
	}
	d.unproved.tell = c.counted(slog.LevelInfo, "refused a connection that did not prove the job's secret, from %s",
		"refused %d connections that did not prove the job's secret, the last from %s")
	d.refused.tell = c.counted(slog.LevelWarn, "refused %s", "refused %d connections of tasks, the last %s")
	d.troubled.tell = c.counted(slog.LevelWarn, "accept: %s", "accept failed %d times, the last: %s")
	d.running.Go(func() { d.accept(ctx) })
	return d
}

// Addr is where the door listens.
func (d *Door) Addr() net.Addr { return d.ln.Addr() }

// Handle has serve called, each time on a goroutine of its own, with every
// connection of the purpose, those that wait for it included. serve owns the
// connection. A later Handle of the purpose replaces the earlier; with a nil
// serve, connections of the purpose wait again.
func (d *Door) Handle(purpose string, serve func(Peer)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if serve == nil {
		delete(d.handlers, purpose)
		return
	}
	d.handlers[purpose] = serve
	for _, of := range d.waiting {
		if p, ok := of[purpose]; ok {
			delete(of, purpose)
			d.running.Go(func() { serve(p) })
		}
	}
}

// Close stops accepting, closes the connections that nobody took and waits
// for the serve functions to return: see to it that they do. It must not be
// called by one of them.
func (d *Door) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		<-d.ended
		return nil
	}
	d.closed = true
	for _, of := range d.waiting {
		for _, p := range of {
			p.Conn.Close() // nobody will ever look at it
		}
	}
	d.waiting = nil
	d.mu.Unlock()
	d.leave()
	err := d.ln.Close()
	for _, s := range []*seldom{&d.unproved, &d.refused, &d.troubled} {
		s.end()
	}
	d.running.Wait()
	close(d.ended)
	return err
}

// accept takes connections until the listener is closed.
func (d *Door) accept(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := d.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			d.troubled.note(err.Error())
			pause(ctx, acceptWait) // its failure is seen above
			continue
		}
		if !d.hall.enter(ctx, conn) {
			conn.Close() // nobody is to hear of it
			return
		}
		d.running.Go(func() { d.meet(ctx, conn) })
	}
}

// meet lets a connection prove itself and passes it on.
func (d *Door) meet(ctx context.Context, conn net.Conn) {
	name, purpose, err := prove(ctx, conn, d.config)
	d.hall.exit(conn)
	addr := conn.RemoteAddr().String()
	switch {
	case err == nil:
		if err = d.pass(name, purpose, addr, conn); err == nil {
			return
		}
		d.config.logf(slog.LevelDebug, "refused %s: %v", addr, err)
		d.refused.note(fmt.Sprintf("%s: %v", addr, err))
	case ctx.Err() == nil: // else it was this door that ended it
		d.config.logf(slog.LevelDebug, "refused %s: %s", addr, unproved(err))
		if !unclaimed(err) {
			d.unproved.note(host(addr))
		}
	}
	conn.Close() // nobody was told of it
}

// pass gives a proved connection to whom it comes for, or lets it wait.
func (d *Door) pass(name, purpose, addr string, conn net.Conn) error {
	task, err := d.config.admit(name, purpose)
	if err != nil {
		return err
	}
	p := Peer{Task: task, Addr: addr, Conn: conn}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errors.New("the task is ending")
	}
	if serve := d.handlers[purpose]; serve != nil {
		d.running.Go(func() { serve(p) })
		return nil
	}
	return d.wait(p, purpose)
}

// wait needs d.mu.
func (d *Door) wait(p Peer, purpose string) error {
	of := d.waiting[p.Task]
	if of == nil {
		of = map[string]Peer{}
		d.waiting[p.Task] = of
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
