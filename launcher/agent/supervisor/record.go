//go:build linux

package supervisor

import (
	"errors"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

// record is what is known of this host's part of the job. It goes to state.json
// and to visitors.
type record struct {
	// State is without Tasks. 0 <= Generation <= Least; Generation < Least once its tasks
	// were started. Phase never leaves Stopping and Over but from the first to the second.
	protocol.State

	saver   *saver
	changed bool      // the latest change is not yet in state.json and not sent to visitors
	stepped bool      // the latest steps are not yet sent to visitors
	shown   time.Time // when visitors were last sent the state; zero means never
	saved   time.Time // when state.json was last written; zero means never
}

// Bounds on how often a state of which only steps have changed goes out.
const (
	showEvery = time.Second      // to visitors
	saveEvery = 10 * time.Second // to state.json
)

// ending reports whether this host's part of the job ends or has ended.
func (r *record) ending() bool { return r.Phase == protocol.Stopping || r.Phase == protocol.Over }

// enter changes the phase. A part that ends is not prepared or started any more.
func (r *record) enter(p protocol.Phase) {
	if r.ending() && p != protocol.Over {
		return
	}
	r.Phase, r.changed = p, true
}

// drives notes the phase of the job whose driver runs in this process.
func (r *record) drives(p protocol.Phase) { r.JobPhase, r.changed = p, true }

// snapshot returns the state, with that of the tasks.
func (r *record) snapshot(tasks map[string]*protocol.TaskNow) protocol.State {
	s := r.State
	s.Tasks = tasks
	return s
}

// due reports whether the state is to be published.
func (r *record) due(now time.Time) bool {
	return r.changed || r.stepped && now.Sub(r.shown) >= showEvery
}

// saver writes states in the background, so that a file system that hangs delays
// neither lease nor tasks. A newer state replaces one that waits.
type saver struct {
	next chan protocol.State // the newest state that waits to be written; at most one
	done chan struct{}       // closed after the last state was written
	err  error               // of the last write; nil: it succeeded; valid once done is closed
}

func newSaver(f jobfolder.Folder) *saver {
	s := &saver{next: make(chan protocol.State, 1), done: make(chan struct{})}
	go s.run(f, jobfolder.AliveEvery)
	return s
}

// run writes the newest state, and again now and then, which shows that the agent lives.
func (s *saver) run(f jobfolder.Folder, every time.Duration) {
	defer close(s.done)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var state protocol.State
	for known := false; ; {
		select {
		case <-tick.C:
			if !known {
				continue
			}
		case next, open := <-s.next:
			if !open {
				return
			}
			state, known = next, true
		}
		state.Alive = time.Now()
		s.err = f.WriteState(state)
	}
}

// save queues a state, which must not be changed any more. One goroutine calls it.
func (s *saver) save(state protocol.State) {
	select {
	case <-s.next:
	default:
	}
	s.next <- state
}

// close waits until the last state is written, at most d, and returns the error of
// that write.
func (s *saver) close(d time.Duration) error {
	close(s.next)
	if !within(d, s.done) {
		return errors.New("the disk did not take the agent's state in time")
	}
	return s.err
}
