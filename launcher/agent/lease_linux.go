package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

// lease is how long an agent lives without a word from its conductor.
type lease struct {
	length time.Duration // 0: for ever
	grace  time.Duration // between SIGTERM and SIGKILL, at the end of it
	begun  time.Duration // by the clock
	clock  func() time.Duration

	// sender is the clock that renewals are stamped with, and ahead how far
	// this one is ahead of it, with the way of the fastest renewal; seen is
	// when that was last looked at.
	sender      string
	ahead, seen time.Duration
}

// newLease starts a lease. The grace is at most half of it.
func newLease(length, grace time.Duration, clock func() time.Duration) *lease {
	return &lease{length: length, grace: min(grace, length/2), begun: clock(), clock: clock}
}

// drift is by how much two clocks may part, for each unit of time.
const drift = 1e-3

// renew starts the lease anew, from when the renewal was sent: one that was
// held up on its way, as by a network that was cut, is worth as much less.
// Without the sender's clock, or where that is a new one, it starts now.
func (l *lease) renew(sender string, sent time.Duration) {
	now := l.clock()
	if sender == "" {
		l.begun = now
		return
	}
	ahead := now - sent
	slack := time.Duration(drift * float64(now-l.seen))
	if sender != l.sender || ahead < l.ahead+slack {
		l.sender, l.ahead = sender, ahead
	} else {
		l.ahead += slack
	}
	l.seen = now
	l.begun = max(l.begun, sent+l.ahead)
}

// killed is when no process of the job may be left but the agent, and told
// when they are told to end. Both are before the end of the lease: a grace
// that ends with it loses what killing takes, but never all it has.
func (l *lease) killed() time.Duration {
	return l.length - min(2*time.Second, l.length/5)
}

func (l *lease) told() time.Duration {
	return min(l.length-l.grace, l.killed()-min(l.grace, l.length/10))
}

// left returns how long tasks may still take to end, once they are to be told
// so; over is false before.
func (l *lease) left() (grace time.Duration, over bool) {
	age := l.clock() - l.begun
	if l.length <= 0 || age < l.told() {
		return 0, false
	}
	return max(l.killed()-age, 0), true
}

// uptime is the time since the machine started, with the time for which it
// was suspended: meanwhile the rest of the job has given this host up. It
// never jumps when somebody sets the clock.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every kernel that Go supports has it
	}
	return time.Duration(t.Nano())
}
