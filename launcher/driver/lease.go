package driver

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// leaseMargin is added to a lease before a host counts as clear, for clocks that do
// not run alike. An agent kills before its lease ends.
const leaseMargin = 2 * time.Second

// renewals are those of one agent's lease.
type renewals struct {
	mu    sync.Mutex
	clock stamper
	sent  time.Time // when the last one was made; zero without one
}

// next makes a renewal.
func (r *renewals) next(now time.Time) protocol.Renew {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = now
	return r.clock.stamp(now)
}

// reset begins with a new agent.
func (r *renewals) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = time.Time{}
}

// unclear is how long a lease may still run: from the last renewal, which the agent
// may have received although it was not heard since.
func (r *renewals) unclear(lease time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sent.IsZero() { // the agent may just have been started
		return lease + leaseMargin
	}
	return max(lease+leaseMargin-time.Since(r.sent), 0)
}

// stamper is the clock that stamps renewals. Its zero value is ready.
type stamper struct {
	seq   int64
	name  string
	begun time.Time
	skew  time.Duration // of the wall clock against the monotonic one
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
	s.seq++
	s.skew = skew
	return protocol.Renew{Seq: s.seq, Clock: s.name, Sent: now.Sub(s.begun)}
}
