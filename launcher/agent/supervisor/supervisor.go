//go:build linux

package supervisor

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/protocol"
)

// supervisor puts the parts together. See the package's documentation for what
// each of them does.
type supervisor struct {
	host       *host
	loop       *loop
	record     *record
	sessions   *sessions
	listeners  *listeners
	checkpoint *checkpoint
	tasks      *tasks
	generation *generation
	shutdown   *shutdown
	driving    *driving
}

// beat is how often the watchdog hears that the loop is alive.
const beat = time.Second

// run is the loop. It returns after the verdict was recorded. terms delivers
// signals of the host.
func (s *supervisor) run(in *watchdog.Inherited, terms <-chan os.Signal) {
	defer close(s.loop.quit)
	tick := time.NewTicker(s.pace())
	defer tick.Stop()
	lost := in.Lost()
	var beaten time.Time
	for !s.loop.over {
		select {
		case f := <-s.loop.calls:
			f()
		case <-lost:
			lost = nil
			s.shutdown.watchdogLost()
		case sig := <-terms:
			s.signalled(sig)
		case <-tick.C:
			s.shutdown.checkLease()
			if time.Since(beaten) >= beat {
				beaten = time.Now()
				in.Beat()
				s.tasks.killFrozen()
			}
		}
		s.shutdown.advance()
		s.publish()
	}
}

// pace is how often the lease is checked.
func (s *supervisor) pace() time.Duration {
	if s.host.spec.Lease <= 0 {
		return beat / 4
	}
	return min(max(s.host.spec.Lease/50, 5*time.Millisecond), 250*time.Millisecond)
}

// publish writes the state to state.json and sends it to visitors, if it has
// changed.
func (s *supervisor) publish() {
	now := time.Now()
	if !s.record.due(now) {
		return
	}
	state := s.snapshot()
	s.record.publish(state, now)
	state.Laid = nil // it can be long, and who needs it reads the file
	s.sessions.show(protocol.Message{State: &state})
}

func (s *supervisor) snapshot() protocol.State { return s.record.snapshot(s.tasks.now()) }

// signalled takes a signal of the host: SIGUSR1 announces that the host is to be
// taken away.
func (s *supervisor) signalled(sig os.Signal) {
	if sig == unix.SIGUSR1 {
		s.preempted()
		return
	}
	s.shutdown.terminated(sig)
}

// codePreempted is the exit status of a job whose host is taken away: that of
// SIGTERM.
const codePreempted = 143

// preempted asks the driver to save and end the job, because this host is to be
// taken away. A job that has no tasks here goes on. Without a driver the lease ends
// this host's part.
func (s *supervisor) preempted() {
	spec := s.host.spec
	reason := "preempted on host " + spec.Host
	switch {
	case s.sessions.driver == nil:
		s.host.log.Printf("%s, and nobody conducts the job", reason)
	case s.generation.spare():
		s.sessions.notice("this host is to be taken away; the job has no tasks on it and goes on")
	default:
		s.host.log.Print(reason)
		s.sessions.tell(protocol.Message{StopAsk: &protocol.Stop{Reason: reason, Code: codePreempted, Grace: spec.Grace, SaveTime: spec.SaveTime}})
	}
}
