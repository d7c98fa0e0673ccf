package agent

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// listen takes what a process says on its control channel, until that closes.
func (s *supervisor) listen(b *body) {
	for {
		m, err := b.control.Receive()
		if err != nil {
			return // closed by the task's end or by us; the exit tells the rest
		}
		s.do(func() {
			if b.task != nil { // one that waits only says that it lives
				s.said(b.task, m)
			}
		})
	}
}

// said notes a control message, and passes on what a conductor wants to know.
func (s *supervisor) said(t *task, m cluster.ControlMessage) {
	if t.now.Exit != nil {
		return
	}
	t.quiet = 0
	switch m.Kind {
	case cluster.Hello:
		// What a --setup line has made of the environment is not known.
		t.now.Native, t.keeps = true, m.Keeps && s.spec.Command.Setup == ""
		if m.Version != cluster.ControlVersion {
			t.cause = fmt.Sprintf("it speaks version %d of the control channel, this plx speaks %d: build both from one release", m.Version, cluster.ControlVersion)
			t.control.Close() // that is how it learns of it
		}
		if t.told {
			s.sendStop(t) // told by signal before it was known to be native
		}
		s.changed = true
	case cluster.Heartbeat:
		if t.now.Step <= m.From && m.Step > m.From {
			t.said = time.Time{} // the first step is waited for
		}
		t.now.Step = max(t.now.Step, m.Step)
		s.stepped = true
	case cluster.Checkpoint:
		t.now.Step = max(t.now.Step, m.Step)
		s.stepped = true
		s.answered(t, m)
		return
	case cluster.Failed:
		t.cause, t.lostPeer, t.now.Failed = m.Cause, m.Peer, &m
		s.changed = true
		t.now.Step = max(t.now.Step, m.Step)
	case cluster.Bears:
		t.now.Bears = true
		s.changed = true
	case cluster.Finished:
		t.finished = true
	case cluster.Waiting:
		s.waits(t)
		return
	default:
		s.log.Printf("%s said %q, which is unknown", t.Task, m.Kind)
		return
	}
	if m.Step > 0 || m.Groups > 0 || m.Made != nil {
		t.now.Word = &m
	}
	if m.Kind == cluster.Heartbeat {
		if !m.Last && time.Since(t.said) < time.Second {
			return
		}
		t.said = time.Now()
	}
	s.tell(protocol.Message{Said: &protocol.Said{Task: t.Task, Generation: t.generation, Message: m}})
}

// feelPulse looks, once a beat, for tasks whose heartbeats have stopped. Beats
// are counted, so that a host that was suspended with its tasks kills none.
func (s *supervisor) feelPulse() {
	if s.spec.Freeze <= 0 {
		return
	}
	for _, t := range s.tasks {
		if !t.running() || !t.now.Native || t.told || t.finished || t.killing {
			continue
		}
		if t.quiet++; time.Duration(t.quiet)*beat > s.spec.Freeze {
			s.frozen(t)
		}
	}
}

// frozen ends a task that does not go on. Its word is sent first: should it
// not be killed either, that is all there will be.
func (s *supervisor) frozen(t *task) {
	if t.cause == "" {
		t.cause = fmt.Sprintf("it froze: no heartbeat for %s", s.spec.Freeze)
	}
	s.tell(protocol.Message{Said: &protocol.Said{Task: t.Task, Generation: t.generation,
		Message: cluster.ControlMessage{Kind: cluster.Failed, Cause: t.cause}}})
	s.kill(t)
}

// reaped notes that a task's process has ended.
func (s *supervisor) reaped(t *task) {
	if t == nil {
		return // it waited
	}
	t.reaped = true
	if t.told && s.ending == nil {
		s.kill(t) // what it left behind
	}
	s.progress()
}

// exited reports the end of a task, once its output is read or somebody else
// holds that open.
func (s *supervisor) exited(t *task, quiet bool) {
	t.over()
	t.control.Close() // whatever holds the other end, the task is gone
	cause := "killed: it did not end in time"
	if s.ending != nil && s.ending.cause != "" {
		cause = s.ending.cause
	}
	t.now.Exit = t.exit(cause)
	s.changed = true
	s.unsavedBy(t)
	if !quiet {
		s.notice(fmt.Sprintf("%s has ended, but a process that it started still holds its output open", t.Task))
	}
	s.tell(protocol.Message{Exited: t.now.Exit})
}

// stop tells tasks to end and kills them after the grace.
func (s *supervisor) stop(m protocol.Stop) {
	if s.ending != nil {
		return
	}
	names := m.Tasks
	if len(names) == 0 {
		for name := range s.tasks {
			names = append(names, name)
		}
	}
	for _, name := range names {
		t := s.tasks[name]
		if t == nil || !t.running() {
			continue
		}
		s.tellToEnd(t, m.Grace, m.Keep)
		t.kill.set(m.Grace, s.unlessExited(t, func() { s.kill(t) }))
	}
}

// tellToEnd asks a task to end: over the control channel where it has one,
// and then, or otherwise, by signal. With keep its process need not, if it can
// be another generation's; once it was told to end altogether, that holds.
func (s *supervisor) tellToEnd(t *task, grace time.Duration, keep bool) {
	regroup := keep && t.keeps && (t.regrouping || !t.told)
	news := !t.told || t.regrouping != regroup
	t.told, t.regrouping = true, regroup
	if !t.now.Native {
		t.terminate()
		return
	}
	t.term.set(grace/2, s.unlessExited(t, t.terminate))
	if news {
		s.sendStop(t)
	}
}

// sendStop tells a task to end, or its generation. One that does not take it
// gets a signal.
func (s *supervisor) sendStop(t *task) {
	kind := cluster.Stop
	if t.regrouping {
		kind = cluster.Regroup
	}
	t.say(word{ControlMessage: cluster.ControlMessage{Kind: kind}})
}

// unlessExited returns a timer's function that calls f, unless the task has
// ended by then.
func (s *supervisor) unlessExited(t *task, f func()) func() {
	return func() {
		s.do(func() {
			if t.now.Exit == nil {
				f()
			}
		})
	}
}

// killTime bounds how long killed processes are waited for.
const killTime = 5 * time.Second

// kill ends all processes of a task.
func (s *supervisor) kill(t *task) {
	if t.killing {
		return
	}
	t.killing = t.running()
	b, as := t.body, birth{t.Task, t.generation}
	s.work.Go(func() {
		list := func() ([]process, error) { return b.processes(as, s.spec.Job, s.spec.Folder) }
		_, left, err := sweep(list, killTime)
		s.do(func() { s.killed(t.Task.String(), left, err) })
	})
}

// killed reports what could not be killed.
func (s *supervisor) killed(whose string, left []int, err error) {
	if err != nil {
		s.notice(fmt.Sprintf("list processes: %v", err))
	}
	if len(left) > 0 {
		s.state.Unkillable = left
		s.changed = true
		s.notice(fmt.Sprintf("processes %v of %s did not end when killed: stuck in the kernel, or another user's", left, whose))
	}
}
