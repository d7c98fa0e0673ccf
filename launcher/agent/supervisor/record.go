//go:build linux

package supervisor

import (
	"errors"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

// record is the state of the job on this host. The supervisor writes it to
// state.json and sends it to visitors (plx commands that watch the job).
type record struct {
	// The field Tasks is always empty; snapshot sets it in a copy. Least is
	// the lowest number of a generation (start of all tasks) that may still be
	// prepared. It is at least Generation, and greater once the tasks of
	// Generation were started. The phase Stopping can change only to Over, and
	// Over is final.
	protocol.State

	saver   *saver
	changed bool      // set by a change that must be published at once; cleared by publish
	stepped bool      // set when a task reports a new step; cleared by publish
	shown   time.Time // time at which visitors (plx commands that watch the job) were last sent the state; zero before that
	saved   time.Time // time at which state.json was last written; zero before that
}

// Minimum intervals of publishing the state when only the tasks' step numbers
// have changed.
const (
	showEvery = time.Second      // minimum interval for sending the state to visitors (plx commands that watch the job)
	saveEvery = 10 * time.Second // minimum interval for writing state.json
)

// ending reports whether the job is ending or has ended on this host.
func (r *record) ending() bool { return r.Phase == protocol.Stopping || r.Phase == protocol.Over }

// enter changes the phase. After Stopping it accepts only Over.
func (r *record) enter(p protocol.Phase) {
	if r.ending() && p != protocol.Over {
		return
	}
	r.Phase, r.changed = p, true
}

// drives records the phase of the whole job. Only the supervisor whose process
// also runs the driver (which controls the job) calls it.
func (r *record) drives(p protocol.Phase) { r.JobPhase, r.changed = p, true }

// snapshot returns the state including the state of the tasks.
func (r *record) snapshot(tasks map[string]*protocol.TaskState) protocol.State {
	s := r.State
	s.Tasks = tasks
	return s
}

// due reports whether the state must be published now.
func (r *record) due(now time.Time) bool {
	return r.changed || r.stepped && now.Sub(r.shown) >= showEvery
}

// saver writes the state to state.json in the background, because the file
// system may hang. Neither the lease (by which the driver keeps the tasks
// alive) nor the tasks wait for it. A newer state replaces an older one that
// was not written yet.
type saver struct {
	next chan protocol.State // the latest state to write; its capacity is one state
	done chan struct{}       // closed when run has returned, after the last write
	err  error               // error of the last write; other goroutines may read it only after done is closed
}

func newSaver(f jobfolder.Folder) *saver {
	s := &saver{next: make(chan protocol.State, 1), done: make(chan struct{})}
	go s.run(f, jobfolder.AliveEvery)
	return s
}

// run writes each new state. It also rewrites the current state periodically
// with the current time, which shows other machines that this agent is alive.
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

// save queues a state for writing. The caller must not change the state
// afterwards. Only one goroutine may call save.
func (s *saver) save(state protocol.State) {
	select {
	case <-s.next:
	default:
	}
	s.next <- state
}

// close waits up to d until the last state was written, and returns the error
// of that write.
func (s *saver) close(d time.Duration) error {
	close(s.next)
	if !within(d, s.done) {
		return errors.New("timed out writing the agent's state (file system hung?)")
	}
	return s.err
}
