package agent

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// checkpointsOf is the folder below which jobs of a checkpoint name keep their
// checkpoints, "" without a name. The tasks make it.
func checkpointsOf(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	if err := checkElement(name); err != nil {
		return "", err
	}
	dir, err := root()
	return filepath.Join(dir, "ckpt", name), err
}

// save is what was asked of a task about a checkpoint, and answered.
type save struct {
	request int
	asked   bool
	answer  *cluster.ControlMessage
}

// checkpoint asks the chief to save, once for each request, and has it answered
// in any case.
func (s *supervisor) checkpoint(m protocol.Checkpoint) {
	t := s.tasks[cluster.Chief]
	if m.Resume {
		s.resume(t, m.Request)
		return
	}
	if t != nil && t.save.request != m.Request {
		t.save = save{request: m.Request}
	}
	switch {
	case s.ending != nil: // its end says all
	case t == nil || t.body == nil:
		s.unsaved(m, fmt.Sprintf("%s does not run on this host", cluster.Chief))
	case t.save.answer != nil:
		s.tell(protocol.Message{Said: &protocol.Said{Task: t.Task, Generation: t.generation, Message: *t.save.answer}})
	case t.save.asked: // the answer is coming
	case t.now.Exit != nil:
		s.unsaved(m, fmt.Sprintf("%s has ended", t.Task))
	case !t.now.Native:
		s.unsaved(m, "the program does not know of checkpoints (it has not said hello)")
	default:
		t.save.asked = true
		s.askSave(t, m)
	}
}

func (s *supervisor) askSave(t *task, m protocol.Checkpoint) {
	ask := cluster.ControlMessage{Kind: cluster.Checkpoint, Request: m.Request}
	if m.Hold != nil {
		ask.Hold, ask.Workers, ask.Leaving = true, m.Hold.Workers, strings.Join(m.Hold.Leaving, " ")
	}
	t.say(word{ControlMessage: ask, failed: func(err error) {
		s.work.Go(func() {
			s.do(func() {
				s.answered(t, cluster.ControlMessage{Kind: cluster.Checkpoint, Request: m.Request, Cause: err.Error()})
			})
		})
	}})
}

// resume lets a chief go on that is held.
func (s *supervisor) resume(t *task, request int) {
	if t == nil || !t.running() || !t.now.Native {
		return
	}
	t.say(word{ControlMessage: cluster.ControlMessage{Kind: cluster.Resume, Request: request}}) // a channel that takes nothing is seen by its heartbeats
}

// answered takes the first answer to what the task was asked, and passes it
// on. A task that saves by itself may say so as well.
func (s *supervisor) answered(t *task, m cluster.ControlMessage) {
	if !t.save.asked || t.save.answer != nil || t.save.request != m.Request {
		return
	}
	t.save.answer = &m
	s.tell(protocol.Message{Said: &protocol.Said{Task: t.Task, Generation: t.generation, Message: m}})
}

// unsavedBy answers what a task that has ended was asked and did not answer.
func (s *supervisor) unsavedBy(t *task) {
	s.answered(t, cluster.ControlMessage{Kind: cluster.Checkpoint, Request: t.save.request, Cause: fmt.Sprintf("%s ended before it had saved", t.Task)})
}

// unsaved answers for a chief that cannot.
func (s *supervisor) unsaved(m protocol.Checkpoint, cause string) {
	s.tell(protocol.Message{Said: &protocol.Said{Task: cluster.Chief, Generation: s.state.Generation,
		Message: cluster.ControlMessage{Kind: cluster.Checkpoint, Request: m.Request, Cause: cause}}})
}

// preempted asks the conductor to end the job, saved, because this host is to
// be taken away. Without a conductor the lease ends it; one that has gone on
// without this host does not need it.
func (s *supervisor) preempted() {
	reason := "preempted on host " + s.spec.Host
	switch {
	case s.conductor == nil:
		s.log.Printf("%s, and nobody conducts the job", reason)
	case s.spare():
		s.notice("it is to be taken away; the job has no tasks here and goes on")
	default:
		s.log.Print(reason)
		s.tell(protocol.Message{StopAsk: &protocol.Stop{Reason: reason, Code: codePreempted, Grace: s.spec.Grace, SaveTime: s.spec.SaveTime}})
	}
}

// spare reports whether this host has no part in the present generation: it was
// left out, or has come back and is for the next one.
func (s *supervisor) spare() bool { return s.state.Least > 0 && len(s.layout.Tasks) == 0 }

// codePreempted is the exit status of a job whose host was taken away: that of
// SIGTERM.
const codePreempted = 143
