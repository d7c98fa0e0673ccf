// Package lease computes how long a host may keep its tasks running without a
// message from the driver, which is the process that controls the whole job.
// Package supervisor calls Left several times per lease, and ends the host's
// tasks when Left returns over = true.
//
// After a lease has expired, the driver may start the tasks on other hosts. So
// all processes of the job except the agent must end on this host before that.
// One grace period before the lease expires, the supervisor asks the tasks to
// end. A little before the lease expires, it kills them.
//
//	l := lease.New(30*time.Second, 10*time.Second, uptime)
//	l.Renew("launcher", sent)       // for each renewal that arrives
//	grace, over := l.Left()         // over: end all tasks within grace
//
// The package reads no clock except the function that the caller passes.
package lease

import "time"

// Lease computes how long one host may keep its tasks running without a
// message from the driver (the process that controls the job). Only one
// goroutine may call its methods.
type Lease struct {
	length time.Duration        // how long the lease lasts after a renewal; 0 means that it never ends
	grace  time.Duration        // time that tasks get to end, from the request until they are killed; at most half of length
	begun  time.Duration        // when the lease was last renewed, as a reading of clock
	clock  func() time.Duration // returns the time since a fixed moment, such as the boot of the host

	sender string        // name of the clock from which the driver (the process that controls the job) reads its time stamps; "" before the first renewal with a name
	ahead  time.Duration // estimate of clock minus the driver's clock; it includes the transit time of the fastest renewal so far
	seen   time.Duration // when ahead was last updated, as a reading of clock
}

// New starts a lease of the given length. grace is the time that tasks get to
// end; more than half the length is reduced to half the length.
func New(length, grace time.Duration, clock func() time.Duration) *Lease {
	return &Lease{length: length, grace: min(grace, length/2), begun: clock(), clock: clock}
}

// drift is the assumed maximum rate at which two hosts' clocks diverge: 1 ms
// per second. TODO: this rate is a guess, it was measured on no host.
const drift = 1e-3

// Renew restarts the lease. The lease counts from the time sent, when the
// renewal was sent, and not from its arrival. So a renewal that the network
// delayed extends the lease by less. sender names the clock from which sent
// was read. If sender is empty, or differs from the sender of the previous
// renewal, the lease counts from now.
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

// killed is the age of the lease at which the agent kills the job's remaining
// processes. It lies a little before the end of the lease, because killing
// takes time.
func (l *Lease) killed() time.Duration { return l.length - min(2*time.Second, l.length/5) }

// Left returns over = true if the tasks must be asked to end now. grace is the
// time after which they must be killed.
func (l *Lease) Left() (grace time.Duration, over bool) {
	age := l.clock() - l.begun
	// Tasks are asked to end one grace period before the lease expires. If
	// that leaves them too little time until they are killed, the request
	// comes earlier. They always get the smaller of grace and a tenth of the
	// length.
	told := min(l.length-l.grace, l.killed()-min(l.grace, l.length/10))
	if l.length <= 0 || age < told {
		return 0, false
	}
	return max(l.killed()-age, 0), true
}
