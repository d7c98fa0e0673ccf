package conductor

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/coordinator"
	"github.com/plx-run/plx/launcher/protocol"
)

// leaseMargin is added to a lease before a host counts as clear, for clocks
// that do not run alike. An agent kills before its lease ends.
const leaseMargin = 2 * time.Second

// Bounds of the attempts to start a new agent: for each, for one that is under
// way when the job ends, and between two.
const (
	reviving     = 45 * time.Second
	lastAttempt  = 5 * time.Second
	revivePause  = 500 * time.Millisecond
	revivePauses = 15 * time.Second
)

// lose reports the loss of the agent. Where that is gone with all that it ran,
// and was told to end, nothing is lost.
func (l *link) lose(err error) {
	noAgent := errors.Is(err, ErrNoAgent)
	wait := l.unclear()
	if noAgent && l.host.Swept {
		wait = 0
	}
	l.mu.Lock()
	l.clear, l.err = time.Now().Add(wait), err
	if noAgent && l.last != nil {
		l.err = nil
	}
	l.mu.Unlock()
	if l.host.Lost != nil {
		l.host.Lost()
	}
	if !noAgent || !l.ending() {
		l.deliver(coordinator.Lost{Host: l.index, Cause: err.Error(), Clear: wait, Answers: noAgent && l.host.Revive != nil})
	}
}

// unclear is how long the lease may still run: from the last renewal that was
// sent, which the agent may have received although it was not heard since.
func (l *link) unclear() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sent.IsZero() { // it may just have been started
		return l.lease + leaseMargin
	}
	return max(l.lease+leaseMargin-time.Since(l.sent), 0)
}

// revive starts a new agent in place of the one that was lost, however often it
// takes. It returns nil when the job ends before.
func (l *link) revive(ctx context.Context) *protocol.Conn {
	if l.host.Revive == nil || !l.await(ctx, 0) {
		return nil
	}
	for pause := revivePause; ; pause = min(2*pause, revivePauses) {
		conn, err := l.attempt(ctx)
		if err == nil {
			return conn
		}
		l.deliver(coordinator.Silent{Host: l.index, Cause: cause(err)})
		if !l.await(ctx, pause) {
			return nil
		}
	}
}

// attempt is one of them. It is not given up at once when the job ends: an
// agent that was half started would live until its lease is over.
func (l *link) attempt(ctx context.Context) (*protocol.Conn, error) {
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
		case <-l.finished:
		}
		select {
		case <-done:
		case <-time.After(lastAttempt):
			cancel()
		}
	})
	return l.host.Revive(ctx)
}

// await waits for d; false means that the job has ended meanwhile.
func (l *link) await(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.finished: // before the timer, should both be ready
		return false
	default:
	}
	select {
	case <-ctx.Done():
		return false
	case <-l.finished:
		return false
	case <-timer.C:
		return true
	}
}

// renewed begins the life of a new agent.
func (l *link) renewed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard, l.met, l.ended, l.err, l.clear = time.Now(), false, false, nil, time.Time{}
	l.sent, l.greeted = time.Time{}, false
}

// stamper is the clock that renewals are stamped with. Its zero value is ready.
type stamper struct {
	seq   int64
	name  string
	begun time.Time
	skew  time.Duration // of the wall clock against the monotonic one
}

// suspended is by how much the two clocks may part between two renewals. More
// means that this machine slept, or that somebody has set its clock: a new
// clock is begun, of which nothing is known.
const suspended = time.Second

func (s *stamper) stamp(now time.Time) protocol.Renew {
	skew := now.Round(0).Sub(s.begun.Round(0)) - now.Sub(s.begun)
	if d := skew - s.skew; s.name == "" || d > suspended || d < -suspended {
		s.name, s.begun, skew = rand.Text(), now, 0
	}
	s.seq++
	s.skew = skew
	return protocol.Renew{Seq: s.seq, Clock: s.name, Sent: now.Sub(s.begun)}
}
