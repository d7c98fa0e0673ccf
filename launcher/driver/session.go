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

// serve exchanges messages on one connection until it ends. The error is nil
// if the agent closed the connection.
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
	switch h := c.alive(); {
	case errors.Is(err, io.EOF):
		return nil
	case h.idle() > h.replaceAfter():
		return fmt.Errorf("nothing was heard for %s", h.idle().Round(time.Second))
	}
	return err
}

// receive passes every message of the agent to the state machine or to the
// watcher, until the connection ends.
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
		c.received(m)
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
			c.reportTasks(m)
			c.deliver(jobstate.Heard{Host: c.index, Message: m})
		}
	}
}

// reportTasks reports to the event log and the watcher that tasks have started or
// ended.
func (c *contact) reportTasks(m protocol.Message) {
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

// drainTime is how long the driver continues to read from a connection to
// which it can no longer write.
const drainTime = 2 * time.Second

// write sends the queued messages on conn, and closes conn at the end. Only
// the goroutine that runs write can block on a slow network. If receive or
// renew closes conn, the blocked Send returns.
func write(ctx context.Context, conn *protocol.Conn, queue <-chan protocol.Message) {
	defer conn.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-queue:
			if conn.Send(m) != nil {
				select { // wait before closing conn, so that the method receive can read messages that the agent sent earlier
				case <-ctx.Done():
				case <-time.After(drainTime):
				}
				return
			}
		}
	}
}

// renewEvery is the longest interval between two renewals of an agent's lease.
const renewEvery = 2 * time.Second

// renew renews the agent's lease regularly. If the agent sends nothing for a
// third of the lease, renew stops renewing it. The lease then expires, after
// which the agent's tasks are certain to be dead. If the agent sends nothing
// for longer, renew closes the connection.
func (c *contact) renew(ctx context.Context, conn *protocol.Conn) {
	defer conn.Close()
	every := min(renewEvery, c.lease/6)
	tick := time.NewTicker(every)
	defer tick.Stop()
	begun, answering := time.Now(), 2*every // a reconnected agent has this time for its first reply
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h := c.alive()
		if h.idle() <= c.lease/3 {
			c.sendRenewal()
		}
		if h.idle() > h.replaceAfter() && time.Since(begun) > answering {
			return
		}
	}
}

// sendRenewal queues a lease renewal. Without a connection it does nothing.
func (c *contact) sendRenewal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if r := c.clock.stamp(now); c.out.send(protocol.Message{Renew: &r}) {
		c.renewed = now
	}
}

// mostQueued is the capacity of the queue of a connection. A connection whose
// queue is full is considered dead.
const mostQueued = 1024

// outbox is the queue of messages to one agent. Its methods may be called from
// any goroutine.
type outbox struct {
	mu    sync.Mutex
	queue chan protocol.Message // messages for the current connection; nil without a connection
	last  *protocol.Message     // End message set by finish, which open sends on every later connection; nil before finish
}

// open creates the queue of a new connection. The queue begins with the Attach
// message. After finish was called, the End message follows.
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

// send queues a message and reports whether it succeeded. It drops the message
// if there is no connection, or if the queue is full because the agent does
// not read. The state machine later resends messages that are still needed.
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

// finish sends m as the last message, and again on every later connection.
func (o *outbox) finish(m protocol.Message) {
	o.mu.Lock()
	o.last = &m
	o.mu.Unlock()
	o.send(m)
}

// leaseMargin is added to the lease of a lost agent before the driver assumes
// that its processes are dead. It allows for clocks that run at different
// speeds. An agent kills its tasks before its lease expires.
const leaseMargin = 2 * time.Second

// leaseLeft returns how long the lost agent's lease may still be valid. It
// counts from the last renewal that the driver sent, because the agent may
// have received it.
func (c *contact) leaseLeft() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.renewed.IsZero() { // no renewal was sent; assume that the agent was started just now
		return c.lease + leaseMargin
	}
	return max(c.lease+leaseMargin-time.Since(c.renewed), 0)
}

// stamper makes the timestamps of lease renewals. Its zero value is ready to
// use.
type stamper struct {
	name  string        // random name of the current clock, sent with each timestamp; "" before the first timestamp
	begun time.Time     // zero point of the current clock's timestamps
	skew  time.Duration // wall clock minus monotonic clock, each counted from begun, at the last timestamp
}

// suspended is the largest accepted drift between wall clock and monotonic
// clock from one renewal to the next. A larger drift means that this machine
// slept or that its time was set. The next timestamps then have a new clock
// name and count from a new zero point.
const suspended = time.Second

func (s *stamper) stamp(now time.Time) protocol.Renew {
	skew := now.Round(0).Sub(s.begun.Round(0)) - now.Sub(s.begun)
	if d := skew - s.skew; s.name == "" || d > suspended || d < -suspended {
		s.name, s.begun, skew = rand.Text(), now, 0
	}
	s.skew = skew
	return protocol.Renew{Clock: s.name, Sent: now.Sub(s.begun)}
}
