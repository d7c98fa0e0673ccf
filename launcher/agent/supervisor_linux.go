package agent

import (
	"log"
	"net"
	"os"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// supervisor owns the tasks of one host and job. All of its fields belong to
// the goroutine of run; others reach it by do.
type supervisor struct {
	spec   protocol.Spec
	folder folder
	login  []string // the environment the agent was started with
	cores  []int
	log    *log.Logger

	kids   *children
	lease  *lease
	saver  *saver
	local  *net.UnixListener
	data   net.Listener
	noData error // why there is no data listener

	calls chan func()
	quit  chan struct{}  // closed when run takes no more calls
	over  bool           // run is to end
	work  sync.WaitGroup // goroutines to wait for, bounded, at the end

	state     protocol.State
	tasks     map[cluster.Task]*task
	kept      []*body            // processes that wait for the next generation
	layout    protocol.Prepare   // what was prepared last, or is being
	prepared  *protocol.Prepared // the answer to it
	preparing bool
	next      *protocol.Prepare // came meanwhile
	ending    *ending
	conductor *link
	visitors  map[*link]bool
	conducts  chan struct{} // closed when this agent's own conductor is done; nil without
	changed   bool          // state.json and visitors are behind
	stepped   bool          // only a step has changed
	shown     time.Time     // when visitors were last sent the state
	saved     time.Time     // when the state was last saved
}

// do has f called by run. It returns at once when run has ended.
func (s *supervisor) do(f func()) {
	select {
	case s.calls <- f:
	case <-s.quit:
	}
}

// beat is how often the guardian hears that run is alive.
const beat = time.Second

// run is the supervisor's life. alive is written to, to show that it goes on;
// lost is closed when the guardian is gone, and terms delivers requests of
// the host to end, or to be ready for that.
func (s *supervisor) run(alive *os.File, lost <-chan struct{}, terms <-chan os.Signal) {
	defer close(s.quit)
	tick := time.NewTicker(s.pace())
	defer tick.Stop()
	var beaten time.Time
	for !s.over {
		select {
		case f := <-s.calls:
			f()
		case <-lost:
			lost = nil
			s.guardianLost()
		case sig := <-terms:
			s.signalled(sig)
		case <-tick.C:
			s.checkLease()
			if time.Since(beaten) >= beat {
				beaten = time.Now()
				_, _ = alive.Write([]byte{'.'}) // a guardian that is gone is seen by lost
				s.feelPulse()
			}
		}
		s.show()
	}
}

// pace is how often the lease is looked at.
func (s *supervisor) pace() time.Duration {
	if s.spec.Lease <= 0 {
		return beat / 4
	}
	return min(max(s.spec.Lease/50, 5*time.Millisecond), 250*time.Millisecond)
}

// Bounds on how often a state goes out.
const (
	showEvery = time.Second      // steps, to visitors
	saveEvery = 10 * time.Second // steps, to disk
)

// show sends the state to visitors and to disk when it has changed.
func (s *supervisor) show() {
	now := time.Now()
	steps := s.stepped && now.Sub(s.shown) >= showEvery
	if !s.changed && !steps {
		return
	}
	snapshot := s.snapshot()
	if s.changed || now.Sub(s.saved) >= saveEvery {
		s.saver.save(snapshot)
		s.saved = now
	}
	snapshot.Laid = nil // it may be long, and who wants it reads the file
	for l := range s.visitors {
		l.send(protocol.Message{State: &snapshot})
	}
	s.changed, s.stepped, s.shown = false, false, now
}

// snapshot copies the state, so that it can be encoded while tasks go on.
func (s *supervisor) snapshot() protocol.State {
	c := s.state
	c.Tasks = make(map[string]*protocol.TaskNow, len(s.tasks))
	for name, t := range s.tasks {
		now := t.now
		c.Tasks[name.String()] = &now
	}
	return c
}

// notice tells the conductor a line for the user, and the log.
func (s *supervisor) notice(text string) {
	s.log.Print(text)
	if s.conductor != nil {
		s.conductor.send(protocol.Message{Notice: text})
	}
}

// tell sends m to the conductor. Without one it is dropped: State repeats it.
func (s *supervisor) tell(m protocol.Message) {
	if s.conductor != nil {
		s.conductor.send(m)
	}
}

func (s *supervisor) enter(p protocol.Phase) {
	s.state.Phase = p
	s.changed = true
}
