package driver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

// contact keeps the driver in contact with one host: with its agent, and with each
// agent that takes the place of a lost one.
type contact struct {
	index   int
	host    Host
	reviver Reviver // nil: a lost agent is lost for good
	watcher Watcher // nil: none
	lease   time.Duration
	deliver func(jobstate.Event)

	out      outbox
	hearing  hearing
	renewals renewals

	over      chan struct{} // closed when run has ended
	finished  chan struct{} // closed when the job is concluded
	finishing sync.Once     // closes finished
	greeted   bool          // the watcher knows of the present agent; run's alone

	mu    sync.Mutex
	err   error     // why the agent was not seen to end
	clear time.Time // when nothing runs any more of an agent that was lost; zero: none was
}

func newContact(index int, host Host, lease time.Duration, revives bool, deliver func(jobstate.Event)) *contact {
	c := &contact{index: index, host: host, lease: lease, deliver: deliver,
		over: make(chan struct{}), finished: make(chan struct{}), hearing: newHearing(lease)}
	c.watcher, _ = host.Agent.(Watcher)
	if revives {
		c.reviver, _ = host.Agent.(Reviver)
	}
	return c
}

// run keeps one agent after the other connected, until the job is over or no agent
// is to be had any more.
func (c *contact) run(ctx context.Context) {
	defer close(c.over)
	for conn := (*protocol.Conn)(nil); ; {
		err := c.live(ctx, conn)
		if err == nil || ctx.Err() != nil {
			c.settle(err, time.Time{})
			return
		}
		c.lose(err)
		if conn = c.revive(ctx); conn == nil {
			return
		}
		c.renewed()
	}
}

// finish makes m the last message to the agent, now and after reconnecting.
func (c *contact) finish(m protocol.Message) {
	c.out.finish(m)
	c.finishing.Do(func() { close(c.finished) })
}

// ended reports whether the agent was told to end and has reported that it has.
func (c *contact) ended() bool { return c.out.finishing() && c.hearing.reportedEnd() }

// settle notes why the agent was not seen to end, and when its host is clear.
func (c *contact) settle(err error, clear time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.clear = err, clear
}

// outcome is why the agent was not seen to end. It is nil if the agent was, or was
// lost so long ago that nothing is left of it.
func (c *contact) outcome() error {
	select {
	case <-c.over:
	default:
		return errors.New("no answer in time")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.clear.IsZero() && !time.Now().Before(c.clear) {
		return nil
	}
	return c.err
}

// hearing is when the agent was heard. Any goroutine may call its methods.
type hearing struct {
	lease time.Duration

	mu    sync.Mutex
	heard time.Time // when the agent last sent anything; at first when contact was made
	met   bool      // the agent has sent something
	ended bool      // its last state says that its part of the job is over
}

func newHearing(lease time.Duration) hearing { return hearing{lease: lease, heard: time.Now()} }

// reset begins with a new agent.
func (h *hearing) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard, h.met, h.ended = time.Now(), false, false
}

// hear takes a message.
func (h *hearing) hear(m protocol.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard, h.met = time.Now(), true
	if m.State != nil {
		h.ended = m.State.Phase == protocol.Over
	}
}

func (h *hearing) reportedEnd() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

func (h *hearing) hasMet() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.met
}

// silence is for how long the agent was not heard.
func (h *hearing) silence() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.heard)
}

// firstContact is the least time that an agent has to answer at all: it is only
// being started, and has no lease yet.
const firstContact = 30 * time.Second

// patience is how long the agent may stay silent before it is lost.
func (h *hearing) patience() time.Duration {
	if h.hasMet() {
		return h.lease
	}
	return max(h.lease, firstContact)
}

// left is what is left of the patience.
func (h *hearing) left() time.Duration { return h.patience() - h.silence() }

// mostSilence is well under the lease's default, so that a dead connection is
// replaced before the lease ends.
const mostSilence = 20 * time.Second

// mute is how long a connection may carry nothing before it is replaced.
func (h *hearing) mute() time.Duration { return min(mostSilence, h.patience()*2/3) }
