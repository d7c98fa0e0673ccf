package driver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/event"
	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

// contact keeps the driver connected to the agent of one host. If the agent is
// lost, contact makes the host's Reviver start a new agent, and connects to
// that.
type contact struct {
	index   int // index of the host in the job's plan
	host    Host
	reviver Reviver              // starts a new agent after one was lost; nil if lost agents are not replaced
	watcher Watcher              // is called when an agent is connected or lost; may be nil
	lease   time.Duration        // time without a message from the agent after which the agent counts as lost
	deliver func(jobstate.Event) // passes an event to the job's state machine (package jobstate)
	events  *event.Log           // the job's event log; nil if events are not logged

	out outbox // queue of messages to the agent

	over     chan struct{}   // closed when the method run has returned
	finished context.Context // canceled after the agent received its final order to end
	conclude func()          // cancels the context finished
	greeted  bool            // true if Watcher.Up was called for the current agent; used only by run's goroutine

	mu       sync.Mutex
	liveness liveness  // when the current agent last sent a message
	clock    stamper   // timestamps the lease renewals
	renewed  time.Time // when a lease renewal was last queued for the current agent; zero if never
	err      error     // why the agent's end was not confirmed; nil if it was confirmed, and while the method run is active
	clear    time.Time // time after which no process of a lost agent can still run; zero if no agent was lost
}

// run stays connected to the host's agent, and to each agent that replaces a
// lost one. It returns when the job is over, or when no new agent can be
// started.
func (c *contact) run(ctx context.Context) {
	defer close(c.over)
	for conn := (*protocol.Conn)(nil); ; {
		c.begin()
		err := c.live(ctx, conn)
		if err == nil || ctx.Err() != nil {
			c.settle(err, time.Time{})
			return
		}
		c.lose(err)
		if conn = c.revive(ctx); conn == nil {
			return
		}
	}
}

// begin resets the state for a new agent on the host.
func (c *contact) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.greeted, c.liveness = false, liveness{lease: c.lease, heard: time.Now()}
	c.renewed, c.err, c.clear = time.Time{}, nil, time.Time{}
}

// finish queues m, the order to end, as the last message to the agent. After
// every reconnection, m is sent again.
func (c *contact) finish(m protocol.Message) {
	c.conclude()
	c.out.finish(m)
}

// received records that the agent has sent message m. An agent counts as
// starting until it has sent a State message.
func (c *contact) received(m protocol.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ended := c.liveness.ended
	if m.State != nil {
		ended = m.State.Phase == protocol.Over
	}
	c.liveness = liveness{lease: c.lease, heard: time.Now(), met: c.liveness.met || m.State != nil, ended: ended}
}

// alive returns a copy of the agent's liveness.
func (c *contact) alive() liveness {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.liveness
}

// settle records how the connection to the agent ended. err is why the agent's
// end was not confirmed, or nil. clear is the time after which no process of
// the agent can still run.
func (c *contact) settle(err error, clear time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.clear = err, clear
}

// outcome returns why the agent's end was not confirmed. It returns nil if the
// end was confirmed, or if the lost agent's lease has expired, because none of
// its processes can run then. waited is only mentioned in the error's text.
func (c *contact) outcome(waited time.Duration) error {
	select {
	case <-c.over:
	default:
		return fmt.Errorf("no answer within %v", waited)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.clear.IsZero() && !time.Now().Before(c.clear) {
		return nil
	}
	return c.err
}

// liveness records when an agent was last known to be alive.
type liveness struct {
	lease time.Duration // how long a running agent may send nothing before it counts as lost
	heard time.Time     // when the agent last sent a message; before its first message, when the driver began to connect
	met   bool          // true once the agent has sent its first State message, which shows that it has started
	ended bool          // true if the agent's last State says that the job has ended on its host
}

// idle returns the time since the agent's last message.
func (h liveness) idle() time.Duration { return time.Since(h.heard) }

// startTimeout is the minimum time that the driver waits for the first message
// of a new agent. After the first message, the agent counts as lost when it
// has been silent for the duration of its lease.
const startTimeout = 30 * time.Second

// timeout returns how long the agent may send nothing before it counts as
// lost.
func (h liveness) timeout() time.Duration {
	if h.met {
		return h.lease
	}
	return max(h.lease, startTimeout)
}

// left returns the time until the agent counts as lost, unless it sends a
// message before.
func (h liveness) left() time.Duration { return h.timeout() - h.idle() }

// maxIdle is the longest time without a message after which the driver
// replaces a connection. It is well below the default lease, so that a new
// connection is made before the lease expires.
const maxIdle = 20 * time.Second

// replaceAfter returns the time without a message after which the driver replaces the
// connection.
func (h liveness) replaceAfter() time.Duration { return min(maxIdle, h.timeout()*2/3) }

// withinTime returns a context that times out after limit, with an error about
// the failed connection.
func withinTime(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no connection within %v", limit.Round(time.Second)))
}

// live connects to the agent, exchanges messages, and reconnects whenever the
// connection is lost. It returns nil if the agent has ended as ordered. It
// returns an error if the agent has sent nothing for the duration of a lease,
// or no longer exists. If conn is not nil, live uses conn as the first
// connection.
func (c *contact) live(ctx context.Context, conn *protocol.Conn) error {
	var first error // why the first attempt to connect, or the first connection, failed
	for reported := false; ; conn = nil {
		connected, err := c.connect(ctx, conn)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && c.finished.Err() != nil && c.alive().ended:
			return nil
		case errors.Is(err, ErrNoAgent):
			return c.neverStarted(err, first)
		case c.alive().left() <= 0:
			return fmt.Errorf("not heard for %s: %s", c.alive().timeout(), cause(err))
		}
		if connected || !reported {
			c.deliver(jobstate.Silent{Host: c.index, Cause: cause(err)})
			reported = true
		}
		if first == nil {
			first = err
		}
		pause(ctx, min(c.lease/30, time.Second))
	}
}

// connect exchanges messages with the agent until the connection ends. It uses
// conn, or dials the agent if conn is nil. The error is nil if the agent
// closed the connection.
func (c *contact) connect(ctx context.Context, conn *protocol.Conn) (connected bool, err error) {
	if conn == nil {
		if conn, err = c.dial(ctx); err != nil {
			return false, err
		}
	}
	return true, c.serve(ctx, conn)
}

// dial dials the agent. If the host is a Queuer, which limits how many hosts
// are dialed at the same time, dial first waits for this host's turn.
func (c *contact) dial(ctx context.Context) (*protocol.Conn, error) {
	if q, waits := c.host.Agent.(Queuer); waits {
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.finished, cancel)()
		done, err := q.Turn(waiting)
		if err != nil {
			return nil, fmt.Errorf("%w: the job ended before its turn to be started", ErrNoAgent)
		}
		defer done()
		c.resetTimeout()
	}
	dialling, cancel := withinTime(ctx, max(c.alive().left(), time.Second))
	defer cancel()
	conn, err := c.host.Agent.Dial(dialling)
	if end, _ := dialling.Deadline(); errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(end) {
		<-dialling.Done() // wait for the context: the connection has the same deadline and may report it first, but the context's cause is the better error
		err = context.Cause(dialling)
	}
	return conn, err
}

// resetTimeout restarts the liveness timeout of an agent that has sent nothing
// yet, because the driver begins to dial it only now.
func (c *contact) resetTimeout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.liveness.met {
		c.liveness = liveness{lease: c.lease, heard: time.Now(), ended: c.liveness.ended}
	}
}

// neverStarted returns the error for an agent that never sent its first State
// message. It adds first, the first connection error, to end, because first
// may be the only hint at the cause, such as a full disk.
func (c *contact) neverStarted(end, first error) error {
	if c.alive().met || first == nil || strings.Contains(first.Error(), strings.TrimPrefix(end.Error(), ErrNoAgent.Error()+": ")) {
		return end
	}
	return fmt.Errorf("%w; when it was started: %w", end, first)
}

// cause describes why a connection was lost.
func cause(err error) string {
	if err == nil {
		return "the agent closed it"
	}
	return err.Error()
}

// pause sleeps for a random time of about d, so that many hosts are not dialed
// at the same moment.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d/2 + rand.N(d)):
	}
}

// Time limits for starting a new agent. reviving is the timeout of each
// attempt. When the job ends, a running attempt gets lastAttempt more. The
// pause between attempts grows from revivePause to revivePauses.
const (
	reviving     = 45 * time.Second
	lastAttempt  = 5 * time.Second
	revivePause  = 500 * time.Millisecond
	revivePauses = 15 * time.Second
)

// lose reports to the state machine that the agent was lost. If the agent was
// ordered to end, and has ended with all its processes, lose reports nothing.
func (c *contact) lose(err error) {
	noAgent := errors.Is(err, ErrNoAgent)
	wait := c.leaseLeft()
	if noAgent && c.host.NoAgentMeansClean {
		wait = 0
	}
	ending := noAgent && c.finished.Err() != nil
	outcome := err
	if ending {
		outcome = nil
	}
	c.settle(outcome, time.Now().Add(wait))
	if c.watcher != nil {
		c.watcher.Lost()
	}
	if !ending {
		c.deliver(jobstate.Lost{Host: c.index, Cause: err.Error(), Clear: wait, Answers: noAgent && c.reviver != nil})
	}
}

// revive starts a new agent after the previous one was lost, and retries until
// it succeeds. It returns nil if the job ends before that, or if the host has
// no Reviver.
func (c *contact) revive(ctx context.Context) *protocol.Conn {
	if c.reviver == nil || !c.await(ctx, 0) {
		return nil
	}
	for pause := revivePause; ; pause = min(2*pause, revivePauses) {
		conn, err := c.attempt(ctx)
		if err == nil {
			return conn
		}
		c.deliver(jobstate.Silent{Host: c.index, Cause: cause(err)})
		if !c.await(ctx, pause) {
			return nil
		}
	}
}

// attempt tries once to start a new agent. If the job ends meanwhile, attempt
// goes on for a few seconds, because a half-started agent would run until its
// lease expires.
func (c *contact) attempt(ctx context.Context) (*protocol.Conn, error) {
	ctx, cancel := withinTime(ctx, reviving)
	defer cancel()
	stop := context.AfterFunc(c.finished, func() { time.AfterFunc(lastAttempt, cancel) })
	defer stop()
	return c.reviver.Revive(ctx)
}

// await waits for d. If the job ends earlier, it returns false at once.
func (c *contact) await(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-c.finished.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil && c.finished.Err() == nil
}
