package agent

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// ending is the end of the agent, once that is decided. It cannot be undone.
type ending struct {
	verdict  protocol.Verdict
	cause    string // of the exits of tasks that had to be killed
	kill     alarm
	overdue  bool // the grace is over
	leased   bool // the lease is over
	sweeping bool
}

// end tells all tasks to end and kills what is left after the grace; then it
// records the verdict. Asked again, it can only be made to hurry.
func (s *supervisor) end(v protocol.Verdict, grace time.Duration, cause string) {
	if s.ending == nil {
		s.log.Printf("ending: %s", v.Reason)
		s.ending = &ending{verdict: v, cause: cause}
		s.enter(protocol.Stopping)
	}
	for _, t := range s.tasks {
		if t.running() {
			s.tellToEnd(t, grace, false)
		}
	}
	for _, b := range s.kept {
		b.say(word{ControlMessage: cluster.ControlMessage{Kind: cluster.Stop}})
	}
	s.ending.kill.set(grace, func() {
		s.do(func() {
			s.ending.overdue = true
			s.progress()
		})
	})
	if grace <= 0 {
		s.ending.overdue = true
	}
	s.progress()
}

// progress goes on with the end: once every task has ended, or the grace has,
// all descendants are killed.
func (s *supervisor) progress() {
	if s.ending == nil || s.ending.sweeping || s.preparing {
		return
	}
	for _, t := range s.tasks {
		if t.running() && !s.ending.overdue {
			return
		}
	}
	if len(s.kept) > 0 && !s.ending.overdue {
		return
	}
	s.ending.sweeping = true
	for _, t := range s.tasks {
		t.killing = t.running()
	}
	s.work.Go(func() {
		_, left, err := s.kids.clear(killTime)
		s.do(func() {
			s.killed("the job", left, err)
			s.swept()
		})
	})
}

// swept closes what the tasks wrote to. All exits are known by then, but for
// those of processes that could not be killed.
func (s *supervisor) swept() {
	tasks := s.started()
	s.work.Go(func() {
		s.awaitExits(len(tasks.Started.PIDs))
		s.do(func() {
			outs := s.outputs()
			s.work.Go(func() {
				err := closeOutputs(outs)
				s.do(func() { s.conclude(err) })
			})
		})
	})
}

// awaitExits waits, bounded, until the exits of n tasks are known.
func (s *supervisor) awaitExits(n int) {
	for deadline := time.Now().Add(drain + time.Second); time.Now().Before(deadline); {
		known := make(chan int, 1)
		s.do(func() {
			k := 0
			for _, t := range s.tasks {
				if t.body != nil && t.now.Exit != nil {
					k++
				}
			}
			known <- k
		})
		select {
		case k := <-known:
			if k == n {
				return
			}
		case <-s.quit:
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *supervisor) outputs() []*output {
	var outs []*output
	for _, t := range s.tasks {
		if t.body != nil {
			outs = append(outs, t.outs[:]...)
		}
	}
	return append(outs, outputsOf(s.kept)...)
}

// outputsOf returns what processes that wait write to. The caller closes it.
func outputsOf(waiting []*body) []*output {
	var outs []*output
	for _, b := range waiting {
		if !b.closed {
			b.closed = true
			outs = append(outs, b.outs[:]...)
		}
	}
	return outs
}

// closeOutputs closes what nobody can write to any more, but for processes
// that could not be killed.
func closeOutputs(outs []*output) error {
	deadline := time.Now().Add(drain)
	var errs []error
	for _, o := range outs {
		errs = append(errs, o.close(deadline))
	}
	return errors.Join(errs...)
}

// conclude records the verdict. It is the last thing that run does.
func (s *supervisor) conclude(err error) {
	if err != nil {
		s.notice(fmt.Sprintf("close the logs: %v", err))
	}
	if _, err := os.Stat(s.folder.logs()); errors.Is(err, os.ErrNotExist) {
		s.notice(fmt.Sprintf("the job's folder %s was removed while it ran: its logs are incomplete", s.folder))
	}
	if err := os.Remove(s.folder.secret()); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.notice(fmt.Sprintf("delete the job's secret: %v", err))
	}
	s.state.Verdict = &s.ending.verdict
	s.enter(protocol.Over)
	snapshot := s.snapshot()
	s.tell(protocol.Message{State: &snapshot})
	s.over = true
}

// checkLease ends this host's part when the conductor was not heard for the
// lease.
func (s *supervisor) checkLease() {
	grace, over := s.lease.left()
	if !over || s.ending != nil && s.ending.leased {
		return
	}
	who := "the launcher"
	if s.spec.Detached {
		who = "the host that conducts the job"
	}
	s.end(protocol.Verdict{Code: codePlx, Host: s.spec.Host,
		Reason: fmt.Sprintf("host %s: %s was not heard for %s", s.spec.Host, who, s.spec.Lease)}, grace, who+" was not heard")
	s.ending.leased = true
}

// renew keeps the lease, unless it has run out. What was sent in time may be
// read too late, as on a host that was frozen: meanwhile the conductor has
// given this host up.
func (s *supervisor) renew(m protocol.Renew) {
	s.checkLease()
	if _, over := s.lease.left(); !over {
		s.lease.renew(m.Clock, m.Sent)
	}
}

// guardianLost ends everything at once: were this process killed now, nobody
// would end the tasks.
func (s *supervisor) guardianLost() {
	if s.ending != nil && s.ending.sweeping {
		return
	}
	s.endHere("the guardian of the agent was killed", 0, "the agent's guardian was killed")
}

// signalled does what the host wishes: SIGUSR1 is notice that it is to be
// taken away.
func (s *supervisor) signalled(sig os.Signal) {
	if sig == unix.SIGUSR1 {
		s.preempted()
		return
	}
	s.terminated(sig)
}

// terminated ends this host's part at the host's own wish, as when it shuts
// down.
func (s *supervisor) terminated(sig os.Signal) {
	s.endHere(fmt.Sprintf("the agent was told to end: %v", sig), min(s.spec.Grace, 5*time.Second), "the host told the agent to end")
}

// endHere ends this host's part of the job without being asked to by the
// conductor, which is told why.
func (s *supervisor) endHere(reason string, grace time.Duration, cause string) {
	s.notice(reason)
	s.end(protocol.Verdict{Code: codePlx, Host: s.spec.Host, Reason: "host " + s.spec.Host + ": " + reason}, grace, cause)
}
