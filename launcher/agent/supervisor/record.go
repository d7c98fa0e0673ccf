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
	first      protocol.State    // the state at the start of the agent; snapshot overwrites what changes
	phase      protocol.Phase    // of this host's part of the job
	generation int               // number of the generation that was prepared last; 0 before the first too
	least      int               // lowest generation that may still be prepared; those before it are over
	unkillable []int             // pids of processes that outlived SIGKILL; nil: none
	verdict    *protocol.Verdict // how this host's part has ended; nil: it has not

	jobPhase protocol.Phase   // phase of the whole job, if its driver runs in this process; "": it does not
	laid     *protocol.Layout // layout that a driver in this process has announced; nil: none

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

func newRecord(first protocol.State, saver *saver) *record {
	return &record{first: first, phase: first.Phase, least: first.Least, saver: saver}
}

// touch says that a task's state has changed.
func (r *record) touch() { r.changed = true }

// step says that a task's step has changed.
func (r *record) step() { r.stepped = true }

// ending reports whether this host's part of the job ends or has ended.
func (r *record) ending() bool { return r.phase == protocol.Stopping || r.phase == protocol.Over }

// enter changes the phase. A part that ends is not prepared or started any more.
func (r *record) enter(p protocol.Phase) {
	if r.ending() && p != protocol.Over {
		return
	}
	r.phase, r.changed = p, true
}

// prepare notes that a generation is being prepared: those before it are over.
func (r *record) prepare(generation int) {
	r.least = generation
	r.enter(protocol.Idle)
}

// ready notes that the sockets of a generation are open.
func (r *record) ready(generation int) {
	r.generation = generation
	r.enter(protocol.Ready)
}

// start notes that the tasks of the generation are being started. It cannot be
// prepared again.
func (r *record) start() {
	r.least = r.generation + 1
	r.enter(protocol.Running)
}

// unkilled notes the pids of processes that outlived SIGKILL.
func (r *record) unkilled(pids []int) { r.unkillable, r.changed = pids, true }

// drives notes the phase of the job whose driver runs in this process.
func (r *record) drives(p protocol.Phase) { r.jobPhase, r.changed = p, true }

// lay notes where that driver has laid the tasks.
func (r *record) lay(l protocol.Layout) { r.laid, r.changed = &l, true }

// conclude notes how the job has ended.
func (r *record) conclude(v protocol.Verdict) {
	r.verdict = &v
	r.enter(protocol.Over)
}

// snapshot returns the state, with that of the tasks.
func (r *record) snapshot(tasks map[string]*protocol.TaskNow) protocol.State {
	s := r.first
	s.Phase, s.Generation, s.Least = r.phase, r.generation, r.least
	s.Unkillable, s.Verdict = r.unkillable, r.verdict
	s.JobPhase, s.Laid = r.jobPhase, r.laid
	s.Tasks = tasks
	return s
}

// due reports whether the state is to be published.
func (r *record) due(now time.Time) bool {
	return r.changed || r.stepped && now.Sub(r.shown) >= showEvery
}

// publish writes a snapshot to state.json, unless only steps have changed and it
// was written lately. The caller shows it to visitors.
func (r *record) publish(snapshot protocol.State, now time.Time) {
	if r.changed || now.Sub(r.saved) >= saveEvery {
		r.saver.save(snapshot)
		r.saved = now
	}
	r.changed, r.stepped, r.shown = false, false, now
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
