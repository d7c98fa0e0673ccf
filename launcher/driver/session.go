package driver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

// serve carries messages over one connection until it ends. A nil error means that
// the agent has closed it.
func (c *contact) serve(ctx context.Context, conn *protocol.Conn) error {
	living, die := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer die()
	queue := c.out.open()
	wg.Go(func() { write(living, conn, queue) })
	wg.Go(func() { c.renew(living, conn) })
	err := c.receive(conn)
	c.out.close()
	switch h := c.heard(); {
	case errors.Is(err, io.EOF):
		return nil
	case h.silence() > h.mute():
		return fmt.Errorf("nothing was heard for %s", h.silence().Round(time.Second))
	}
	return err
}

// receive reports every message of the agent, until the connection ends.
func (c *contact) receive(conn *protocol.Conn) error {
	defer conn.Close()
	if c.watcher != nil {
		defer c.watcher.Logged(protocol.Logged{Done: true})
	}
	for {
		m, err := conn.Receive()
		if err != nil {
			return err
		}
		m.Trim()
		c.hear(m)
		switch {
		case m.State != nil:
			if c.watcher != nil && !c.greeted {
				c.watcher.Up()
			}
			c.greeted = true
			c.sendRenewal()
			c.deliver(jobstate.Up{Host: c.index, State: *m.State})
		case m.Logged != nil:
			if c.watcher != nil {
				c.watcher.Logged(*m.Logged)
			}
		case m.Made != nil:
			if c.watcher != nil {
				c.watcher.Made(*m.Made)
			}
		case m.Renewed == nil:
			c.tell(m)
			c.deliver(jobstate.Heard{Host: c.index, Message: m})
		}
	}
}

// tell tells of tasks that have started or ended.
func (c *contact) tell(m protocol.Message) {
	if m.Started != nil {
		c.events.Started(c.host.Name, *m.Started)
		if c.watcher != nil {
			c.watcher.Started(*m.Started)
		}
	}
	if m.Exited != nil {
		c.events.Exited(c.host.Name, *m.Exited)
		if c.watcher != nil {
			c.watcher.Exited(*m.Exited)
		}
	}
}

// lastWords bounds how long a connection that takes nothing more is still read.
const lastWords = 2 * time.Second

// write empties the queue onto conn, which it closes at the end. Only this goroutine
// ever waits for the network to take bytes: until receive or renew closes conn.
func write(ctx context.Context, conn *protocol.Conn, queue <-chan protocol.Message) {
	defer conn.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-queue:
			if conn.Send(m) != nil {
				select { // the reader reports the loss, after what the agent sent before
				case <-ctx.Done():
				case <-time.After(lastWords):
				}
				return
			}
		}
	}
}

// renewEvery is how often the lease is renewed.
const renewEvery = 2 * time.Second

// renew renews the lease, and closes a connection that has gone silent. It no longer
// renews the lease of an agent that does not answer: the sooner it is known that
// nothing runs there.
func (c *contact) renew(ctx context.Context, conn *protocol.Conn) {
	defer conn.Close()
	every := min(renewEvery, c.lease/6)
	tick := time.NewTicker(every)
	defer tick.Stop()
	begun, answering := time.Now(), 2*every // the first answer after a long silence takes a moment
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h := c.heard()
		if h.silence() <= c.lease/3 {
			c.sendRenewal()
		}
		if h.silence() > h.mute() && time.Since(begun) > answering {
			return
		}
	}
}

// sendRenewal queues a renewal, if there is a connection.
func (c *contact) sendRenewal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if r := c.clock.stamp(now); c.out.send(protocol.Message{Renew: &r}) {
		c.renewed = now
	}
}

// mostQueued bounds the messages that wait for a connection that takes none. One
// more means that the connection is dead.
const mostQueued = 1024

// outbox is the queue of messages to an agent. Any goroutine may call its methods.
type outbox struct {
	mu    sync.Mutex
	queue chan protocol.Message // messages for the present connection; nil: there is no connection
	last  *protocol.Message     // End, from finish on sent on each connection; nil before
}

// open makes the queue of a new connection, with what every connection begins with.
func (o *outbox) open() <-chan protocol.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = make(chan protocol.Message, mostQueued)
	o.queue <- protocol.Message{Attach: &protocol.Attach{Driver: true}}
	if o.last != nil {
		o.queue <- *o.last
	}
	return o.queue
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = nil
}

// send queues a message. Without a connection it drops the message: the state
// machine sends again what still matters. It drops it too if the queue is full:
// that is a silent connection, which renew ends. It reports whether it has queued m.
func (o *outbox) send(m protocol.Message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.queue <- m:
		return true
	default:
		return false
	}
}

// finish makes m the last message, now and on every later connection.
func (o *outbox) finish(m protocol.Message) {
	o.mu.Lock()
	o.last = &m
	o.mu.Unlock()
	o.send(m)
}

// leaseMargin is added to a lease before a host counts as clear, for clocks that do
// not run alike. An agent kills before its lease ends.
const leaseMargin = 2 * time.Second

// unclear is how long a lease may still run: from the last renewal, which the agent
// may have received although it was not heard since.
func (c *contact) unclear() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.renewed.IsZero() { // the agent may just have been started
		return c.lease + leaseMargin
	}
	return max(c.lease+leaseMargin-time.Since(c.renewed), 0)
}

// stamper is the clock that stamps renewals. Its zero value is ready.
type stamper struct {
	name  string        // name of the driver's present clock; "": no renewal was stamped
	begun time.Time     // zero of the present clock
	skew  time.Duration // wall clock minus monotonic clock since begun, at the last stamp
}

// suspended is by how much the two clocks may part between two renewals. More means
// that this machine slept, or that its clock was set: then the stamper begins a new
// clock, of which agents know nothing.
const suspended = time.Second

func (s *stamper) stamp(now time.Time) protocol.Renew {
	skew := now.Round(0).Sub(s.begun.Round(0)) - now.Sub(s.begun)
	if d := skew - s.skew; s.name == "" || d > suspended || d < -suspended {
		s.name, s.begun, skew = rand.Text(), now, 0
	}
	s.skew = skew
	return protocol.Renew{Clock: s.name, Sent: now.Sub(s.begun)}
}
