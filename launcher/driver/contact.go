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

// contact keeps the driver in contact with one host: with its agent, and with each
// agent that takes the place of a lost one.
type contact struct {
	index   int // of the host
	host    Host
	reviver Reviver              // starts a new agent in place of a lost one; nil: a lost agent is lost for good
	watcher Watcher              // is told of each agent that is connected or lost; nil: nobody is
	lease   time.Duration        // how long the agent may stay silent before it is lost
	deliver func(jobstate.Event) // hands an event to the driver
	events  *event.Log           // of the job; nil: nobody wants them

	out outbox // messages to the agent

	over     chan struct{}   // closed when run has returned
	finished context.Context // ends once the agent was told to end for good
	conclude func()          // ends finished
	greeted  bool            // the watcher knows of the present agent; only run's goroutine uses it

	mu       sync.Mutex
	liveness liveness  // when the present agent was heard
	clock    stamper   // stamps renewals
	renewed  time.Time // when a renewal was last queued for the present agent; zero: never
	err      error     // why the driver did not see the agent end; nil: it did, or method run has not returned
	clear    time.Time // from when on nothing runs of an agent that was lost; zero: none was lost
}

// run keeps one agent after the other connected, until the job is over or no agent
// is to be had any more.
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

// begin begins the life of an agent.
func (c *contact) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.greeted, c.liveness = false, liveness{lease: c.lease, heard: time.Now()}
	c.renewed, c.err, c.clear = time.Time{}, nil, time.Time{}
}

// finish makes m the last message to the agent, now and after reconnecting.
func (c *contact) finish(m protocol.Message) {
	c.conclude()
	c.out.finish(m)
}

// hear notes that the agent has sent a message. What comes before the first State is
// from an agent that is still being started.
func (c *contact) hear(m protocol.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ended := c.liveness.ended
	if m.State != nil {
		ended = m.State.Phase == protocol.Over
	}
	c.liveness = liveness{lease: c.lease, heard: time.Now(), met: c.liveness.met || m.State != nil, ended: ended}
}

// heard is what was heard of the agent until now.
func (c *contact) heard() liveness {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.liveness
}

// settle notes why the agent was not seen to end, and when its host is clear.
func (c *contact) settle(err error, clear time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.clear = err, clear
}

// outcome is why the agent was not seen to end. It is nil if the agent was, or was
// lost so long ago that nothing is left of it. waited is how long its end was awaited.
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

// liveness is when an agent was heard.
type liveness struct {
	lease time.Duration // how long the agent may stay silent once it runs
	heard time.Time     // when the agent last sent anything; before that, when the first attempt to reach it began
	met   bool          // the agent runs: it has sent its State
	ended bool          // the agent's last State says that its part of the job is over
}

// silence is for how long the agent was not heard.
func (h liveness) silence() time.Duration { return time.Since(h.heard) }

// firstContact is the least time that an agent has to answer at all: it is only
// being started, and has no lease yet.
const firstContact = 30 * time.Second

// patience is how long the agent may stay silent before it is lost.
func (h liveness) patience() time.Duration {
	if h.met {
		return h.lease
	}
	return max(h.lease, firstContact)
}

// left is what is left of the patience.
func (h liveness) left() time.Duration { return h.patience() - h.silence() }

// mostSilence is well under the lease's default, so that a dead connection is
// replaced before the lease ends.
const mostSilence = 20 * time.Second

// mute is how long a connection may carry nothing before it is replaced.
func (h liveness) mute() time.Duration { return min(mostSilence, h.patience()*2/3) }

// withinTime bounds an attempt to connect.
func withinTime(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no connection within %v", limit.Round(time.Second)))
}

// live dials the agent, serves the connection, and dials again whenever it is lost.
// It returns nil when the agent has ended, and an error when the agent is lost: not
// heard for a lease, or gone. conn is a connection to begin with; nil is none.
func (c *contact) live(ctx context.Context, conn *protocol.Conn) error {
	var first error // why the first connection was lost
	for reported := false; ; conn = nil {
		connected, err := c.connect(ctx, conn)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && c.finished.Err() != nil && c.heard().ended:
			return nil
		case errors.Is(err, ErrNoAgent):
			return c.neverStarted(err, first)
		case c.heard().left() <= 0:
			return fmt.Errorf("not heard for %s: %s", c.heard().patience(), cause(err))
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

// connect dials, unless there is a connection, and serves the connection until it
// ends. A nil error means that the agent has closed it.
func (c *contact) connect(ctx context.Context, conn *protocol.Conn) (connected bool, err error) {
	if conn == nil {
		if conn, err = c.dial(ctx); err != nil {
			return false, err
		}
	}
	return true, c.serve(ctx, conn)
}

// dial dials, if need be after others.
func (c *contact) dial(ctx context.Context) (*protocol.Conn, error) {
	if q, waits := c.host.Agent.(Queuer); waits {
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.finished, cancel)()
		done, err := q.Turn(waiting)
		if err != nil {
			return nil, fmt.Errorf("%w: it was not its turn to be started", ErrNoAgent)
		}
		defer done()
		c.waited()
	}
	dialling, cancel := withinTime(ctx, max(c.heard().left(), time.Second))
	defer cancel()
	conn, err := c.host.Agent.Dial(dialling)
	if end, _ := dialling.Deadline(); errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(end) {
		<-dialling.Done() // the socket has the same deadline, and may be first
		err = context.Cause(dialling)
	}
	return conn, err
}

// waited notes that only now an agent that has never answered is dialled.
func (c *contact) waited() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.liveness.met {
		c.liveness = liveness{lease: c.lease, heard: time.Now(), ended: c.liveness.ended}
	}
}

// neverStarted adds to the end of an agent that has never answered what it said
// when it could not start: on a full disk nothing else is known of it.
func (c *contact) neverStarted(end, first error) error {
	if c.heard().met || first == nil || strings.Contains(first.Error(), strings.TrimPrefix(end.Error(), ErrNoAgent.Error()+": ")) {
		return end
	}
	return fmt.Errorf("%w; when it was started: %w", end, first)
}

// cause is why a connection was lost.
func cause(err error) string {
	if err == nil {
		return "the agent closed it"
	}
	return err.Error()
}

// pause waits about d. It varies d, so that many hosts are not dialled in step.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d/2 + rand.N(d)):
	}
}

// Bounds of the attempts to start a new agent: for each, for one that is under way
// when the job ends, and between two.
const (
	reviving     = 45 * time.Second
	lastAttempt  = 5 * time.Second
	revivePause  = 500 * time.Millisecond
	revivePauses = 15 * time.Second
)

// lose reports the loss of the agent. An agent that was told to end, and is gone
// with all that it ran, is no loss.
func (c *contact) lose(err error) {
	noAgent := errors.Is(err, ErrNoAgent)
	wait := c.unclear()
	if noAgent && c.host.Swept {
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

// revive starts a new agent in place of the lost one, however often it takes. It
// returns nil if the job ends before.
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

// attempt tries once to start a new agent. It does not give up as soon as the job
// ends: an agent that was half started would live until its lease is over.
func (c *contact) attempt(ctx context.Context) (*protocol.Conn, error) {
	ctx, cancel := withinTime(ctx, reviving)
	defer cancel()
	stop := context.AfterFunc(c.finished, func() { time.AfterFunc(lastAttempt, cancel) })
	defer stop()
	return c.reviver.Revive(ctx)
}

// await waits for d. It returns false if the job has ended meanwhile.
func (c *contact) await(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-c.finished.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil && c.finished.Err() == nil
}
