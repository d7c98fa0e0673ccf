//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/plx-run/plx/launcher/agent/lease"
	"github.com/plx-run/plx/launcher/protocol"
	"golang.org/x/sys/unix"
)

// shutdown ends the job on this host: it asks the tasks to end, kills them
// after a grace period and records the verdict (exit status and reason). The
// cause is a request of the driver, a signal from the host, the death of the
// watchdog, or an expired lease.
type shutdown struct {
	*parts
	tasks      *tasks
	generation *generation

	lease   *lease.Lease
	expired bool // true if the lease has expired, and end was called for that reason

	verdict  *protocol.Verdict // how the job ends on this host; nil while it is not ending
	kill     deadline          // when to kill tasks that still run; the zero value means that the job is not ending
	overdue  bool              // true once the time in kill has passed
	clearing bool              // true while tasks.clear kills all processes of the job on this host
}

// end asks all tasks to end, and kills them after the grace period. If end is
// called again, the first verdict stays, and the shorter grace period applies.
// killed is the reason to report for a task that must be killed; "" selects
// the default reason.
func (s *shutdown) end(v protocol.Verdict, grace time.Duration, killed string) {
	if s.verdict == nil {
		s.host.log.Printf("ending: %s", v.Reason)
		s.verdict = &v
		s.record.enter(protocol.Stopping)
	} else {
		killed = "" // only the first call of end sets the reason that is reported for killed tasks
	}
	s.tasks.end(grace, killed)
	s.kill.set(grace)
}

// advance kills all remaining processes once every task has ended or the grace
// period has passed. The loop calls it after every function that it runs.
func (s *shutdown) advance() {
	s.overdue = s.overdue || s.kill.passed()
	if s.verdict == nil || s.clearing || s.generation.preparing || s.tasks.alive() && !s.overdue {
		return
	}
	s.clearing = true
	s.tasks.clear("the job", s.conclude)
}

// conclude records the verdict (how the job ended on this host) and ends the
// supervisor's loop. err is the error of closing the tasks' log files.
func (s *shutdown) conclude(err error) {
	if err != nil {
		s.sessions.notice(fmt.Sprintf("close the logs: %v", err))
	}
	if _, err := os.Stat(s.host.folder.Logs()); errors.Is(err, os.ErrNotExist) {
		s.sessions.notice(fmt.Sprintf("the job's folder %s was removed while it ran: its logs are incomplete", s.host.folder))
	}
	if err := errors.Join(s.host.folder.RemoveSecret(), s.host.folder.RemoveSetup()); err != nil {
		s.sessions.notice(fmt.Sprintf("delete the job's secrets: %v", err))
	}
	s.record.Verdict = s.verdict
	s.record.enter(protocol.Over)
	state := s.record.snapshot(s.tasks.now())
	s.sessions.sendToDriver(protocol.Message{State: &state})
	s.loop.over = true
}

// checkLease ends the job on this host if the driver (the process that
// controls the job) has not renewed the lease in time. It reports whether the
// lease has expired.
func (s *shutdown) checkLease() (over bool) {
	grace, over := s.lease.Left()
	if !over || s.expired {
		return over
	}
	s.expired = true
	who := s.host.driver()
	s.end(s.host.failed(fmt.Sprintf("%s was not heard for %s", who, s.host.spec.Lease)), grace, who+" was not heard")
	return true
}

// renew renews the lease, unless it has already expired. If the host was
// suspended, the supervisor may read a renewal long after its arrival. Such a
// renewal must not count, because the driver has given up the host by then.
func (s *shutdown) renew(m protocol.Renew) {
	if !s.checkLease() {
		s.lease.Renew(m.Clock, m.Sent)
	}
}

// endHere ends the job on this host on the supervisor's own decision, and
// tells the driver the reason.
func (s *shutdown) endHere(reason string, grace time.Duration, killed string) {
	s.sessions.notice(reason)
	s.end(s.host.failed(reason), grace, killed)
}

// uptime returns the time since the machine has booted. It includes the time
// during which the machine was suspended. The lease (the time that an agent may
// run tasks without a message from the driver) must expire during that time
// too. Setting the clock does not change the uptime.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // this cannot happen: every kernel that Go supports has this clock
	}
	return time.Duration(t.Nano())
}
