// Package lease computes how long a host may go on without hearing from its
// driver, the launcher or the agent that drives the job. Package supervisor
// asks a Lease several times per lease and ends the host's tasks as it says.
//
// After a lease the driver may start the tasks elsewhere. So before its end no process of
// the job may be left on the host but the agent. The tasks are told to end a grace
// before the end, and are killed a little before the end.
//
//	l := lease.New(30*time.Second, 10*time.Second, uptime)
//	l.Renew("launcher", sent)       // for each renewal that arrives
//	grace, over := l.Left()         // over: end all tasks within grace
//
// The package reads no clock but the one that it is given.
package lease

import "time"

// Lease is the lease of one host. Its methods are called by one goroutine.
type Lease struct {
	length time.Duration        // 0: the lease never ends
	grace  time.Duration        // from telling the tasks to end to killing them; at most half of length
	begun  time.Duration        // when the present lease began, in the time of clock
	clock  func() time.Duration // time since a fixed moment, such as the machine's start

	sender string        // name of the clock that stamps renewals; "": no stamped renewal has come
	ahead  time.Duration // clock minus the sender's clock, plus the transit time of the fastest renewal
	seen   time.Duration // when ahead was last updated, in the time of clock
}

// New starts a lease. It reduces a grace of more than half the length to that.
func New(length, grace time.Duration, clock func() time.Duration) *Lease {
	return &Lease{length: length, grace: min(grace, length/2), begun: clock(), clock: clock}
}

// drift bounds by how much two clocks diverge per unit of time.
const drift = 1e-3

// Renew starts the lease again from the time when the renewal was sent, by the
// clock that sender names. A renewal that was delayed, as by a network that was
// cut, is therefore worth less. A renewal without a sender, and the first one of
// a new sender, starts the lease now.
func (l *Lease) Renew(sender string, sent time.Duration) {
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

// killed is the age of the lease at which no process of the job may be left but
// the agent. Killing takes time, so it is before the end of the lease.
func (l *Lease) killed() time.Duration { return l.length - min(2*time.Second, l.length/5) }

// Left reports whether tasks are to be told to end (over), and how much time
// they then have until they are killed.
func (l *Lease) Left() (grace time.Duration, over bool) {
	age := l.clock() - l.begun
	// If a whole grace does not fit before killed, tasks still get a tenth of the length.
	told := min(l.length-l.grace, l.killed()-min(l.grace, l.length/10))
	if l.length <= 0 || age < told {
		return 0, false
	}
	return max(l.killed()-age, 0), true
}
