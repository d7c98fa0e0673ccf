package driver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

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
	wait := c.renewals.unclear(c.lease)
	if noAgent && c.host.Swept {
		wait = 0
	}
	ending := noAgent && c.out.finishing()
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
	ctx, cancel := context.WithTimeoutCause(ctx, reviving, errNoConnection)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	done := make(chan struct{})
	defer close(done)
	wg.Go(func() {
		select {
		case <-done:
			return
		case <-c.finished:
		}
		select {
		case <-done:
		case <-time.After(lastAttempt):
			cancel()
		}
	})
	return c.reviver.Revive(ctx)
}

// await waits for d. It returns false if the job has ended meanwhile.
func (c *contact) await(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.finished: // first, if the timer is ready too
		return false
	default:
	}
	select {
	case <-ctx.Done():
		return false
	case <-c.finished:
		return false
	case <-timer.C:
		return true
	}
}

// renewed begins the life of a new agent.
func (c *contact) renewed() {
	c.hearing.reset()
	c.renewals.reset()
	c.settle(nil, time.Time{})
	c.greeted = false
}
