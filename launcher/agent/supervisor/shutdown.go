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

// shutdown ends this host's part of the job: the tasks are told to end, killed after
// a grace, and the verdict is recorded. The driver asks for it; so do the host, a
// lost watchdog and a lease that has run out.
type shutdown struct {
	*parts
	tasks      *tasks
	generation *generation

	lease   *lease.Lease
	expired bool // the lease has run out, and tasks were told to end for that

	verdict  *protocol.Verdict // how this host's part ends; nil: nothing has asked it to end
	kill     deadline          // when tasks that still run are killed; zero: nothing has asked for an end
	overdue  bool              // the time in kill has passed
	clearing bool              // all processes of the job on this host are being killed
}

// end tells all tasks to end and has them killed after the grace. Asked again, it
// keeps the first verdict, and the shorter grace holds. killed is the cause that a
// task gives that had to be killed, "" for the usual one.
func (s *shutdown) end(v protocol.Verdict, grace time.Duration, killed string) {
	if s.verdict == nil {
		s.host.log.Printf("ending: %s", v.Reason)
		s.verdict = &v
		s.record.enter(protocol.Stopping)
	} else {
		killed = "" // the first cause holds
	}
	s.tasks.end(grace, killed)
	s.kill.set(grace)
}

// advance kills all descendants once every task has ended, or the grace has. The
// loop calls it after every function that it runs.
func (s *shutdown) advance() {
	s.overdue = s.overdue || s.kill.passed()
	if s.verdict == nil || s.clearing || s.generation.preparing || s.tasks.alive() && !s.overdue {
		return
	}
	s.clearing = true
	s.tasks.clear("the job", s.conclude)
}

// conclude records the verdict and ends the loop. err is that of closing the logs.
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
	s.sessions.tell(protocol.Message{State: &state})
	s.loop.over = true
}

// checkLease ends this host's part if the driver was not heard for the lease.
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

// renew keeps the lease, unless it has run out. A renewal that was sent in time can
// be read too late, as on a host that was frozen; the driver has given this host up
// meanwhile.
func (s *shutdown) renew(m protocol.Renew) {
	if !s.checkLease() {
		s.lease.Renew(m.Clock, m.Sent)
	}
}

// endHere ends this host's part and tells the driver, which has not asked for it,
// why.
func (s *shutdown) endHere(reason string, grace time.Duration, killed string) {
	s.sessions.notice(reason)
	s.end(s.host.failed(reason), grace, killed)
}

// uptime is the time since the machine started. It includes the time for which
// the machine was suspended, because the rest of the job gives the host up
// meanwhile. It does not jump when somebody sets the clock.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every kernel that Go supports has it
	}
	return time.Duration(t.Nano())
}
