package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/trainer/cluster"
)

// body is the process of a task: of several, one generation after the other,
// where it can go on.
type body struct {
	child   *child
	control *cluster.Control
	outs    [2]*output // stdout, stderr
	born    birth
	cores   []int // it may use
	keeps   bool  // it said that it can go on with another generation
	words   chan word

	task   *task             // nil: it waits for the next generation
	last   protocol.TaskSpec // what it was before
	closed bool              // somebody closes its outputs
}

// word is something to say to a process.
type word struct {
	cluster.ControlMessage
	socket int         // goes with it, and is closed; 0: none
	failed func(error) // called when it could not be said; may be nil
}

// mostWords is how many may wait for a process that does not listen.
const mostWords = 16

// say has a process told something, in the order of the calls. One that does not
// listen is dealt with by signals.
func (b *body) say(w word) {
	select {
	case b.words <- w:
	default:
		w.over(errors.New("it does not listen"))
	}
}

// speak says one word after the other, until hushed is closed. What was not said
// by then is over.
func (b *body) speak(hushed <-chan struct{}) {
	for {
		select {
		case w := <-b.words:
			if w.socket > 0 {
				w.over(b.control.SendSocket(w.ControlMessage, w.socket))
				continue
			}
			w.over(b.control.Send(w.ControlMessage))
		case <-hushed:
			for len(b.words) > 0 {
				(<-b.words).over(errors.New("it has ended"))
			}
			return
		}
	}
}

func (w word) over(err error) {
	if w.socket > 0 {
		unix.Close(w.socket) // the process has its own
	}
	if err != nil && w.failed != nil {
		w.failed(err)
	}
}

// birth is as what a process was started. It stays in its environment, and in
// that of what it starts.
type birth struct {
	task       cluster.Task
	generation int
}

func (b birth) in(env []string) bool {
	return slices.Contains(env, "PLX_ROLE="+string(b.task.Role)) &&
		slices.Contains(env, "PLX_TASK_INDEX="+strconv.Itoa(b.task.Index)) &&
		slices.Contains(env, "PLX_GENERATION="+strconv.Itoa(b.generation))
}

// give makes b the process of t.
func (t *task) give(b *body) {
	t.body, b.task, b.last = b, t, t.TaskSpec
	t.now = protocol.TaskNow{PID: b.child.pid, Native: b.keeps}
}

// waits takes a process's word that nothing of its generation is left in it: its
// task has ended.
func (s *supervisor) waits(t *task) {
	if !t.regrouping || t.killing || t.reaped {
		return // it is to end, or has
	}
	t.over()
	t.now.Exit = &protocol.Exit{Task: t.Task, Generation: t.generation, Started: true, Native: true, Told: true, Kept: true, Time: time.Now()}
	s.kept = append(s.kept, t.body)
	t.body.task, t.body = nil, nil
	s.changed = true
	s.unsavedBy(t)
	s.tell(protocol.Message{Exited: t.now.Exit})
	s.progress()
}

// heirs chooses, for tasks of the next generation, processes that wait for one:
// they keep their devices and cores. The rest are of no use to it.
func (s *supervisor) heirs(tasks []protocol.TaskSpec) map[cluster.Task]*body {
	free := slices.DeleteFunc(slices.Clone(s.kept), func(b *body) bool { return b.closed || b.child.over() })
	slices.SortFunc(free, func(a, b *body) int { return cmp.Compare(a.last.Task.Index, b.last.Task.Index) })
	chosen := map[cluster.Task]*body{}
	for _, spec := range tasks {
		i := slices.IndexFunc(free, func(b *body) bool {
			return b.last.Task.Role == spec.Task.Role && b.last.Devices == spec.Devices && slices.Equal(b.cores, s.share(spec))
		})
		if i >= 0 {
			chosen[spec.Task] = free[i]
			free = slices.Delete(free, i, i+1)
		}
	}
	return chosen
}

// carryOn makes t, of the next generation, the task of a process that waits.
func (s *supervisor) carryOn(t *task, b *body, c cluster.Contract, dir string) error {
	socket, err := unix.FcntlInt(uintptr(t.open.fd), unix.F_DUPFD_CLOEXEC, 3) // behind the standard streams
	if err != nil {
		return fmt.Errorf("listening socket: %w", err)
	}
	if err := s.turn(t, b); err != nil {
		unix.Close(socket)
		return err
	}
	s.kept = slices.DeleteFunc(s.kept, func(k *body) bool { return k == b })
	t.give(b)
	t.open.closeSocket()
	m := word{ControlMessage: cluster.ControlMessage{Kind: cluster.Begin, Next: &cluster.Next{Dir: []byte(dir)}}, socket: socket,
		failed: func(err error) { s.work.Go(func() { s.do(func() { s.stayed(t, err) }) }) }}
	for _, pair := range append(c.Environ(), "PWD="+dir) {
		m.Next.Environ = append(m.Next.Environ, []byte(pair))
	}
	b.say(m)
	return nil
}

// stayed ends a process that did not hear what it is now.
func (s *supervisor) stayed(t *task, err error) {
	if t.now.Exit == nil {
		t.cause = fmt.Sprintf("it could not be told of generation %d: %v", t.generation, err)
		s.kill(t)
	}
}

// turn has a process write to the logs of the task that it is to be.
func (s *supervisor) turn(t *task, b *body) error {
	for i, stream := range []logs.Stream{logs.Stdout, logs.Stderr} {
		src := logs.Source{Task: t.Task.String(), Stream: stream}
		before, err := b.outs[i].turn(src.String(), func() (io.WriteCloser, error) { return s.spool(t, src) })
		if before != nil {
			s.notice(before.Error())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// left takes the end of a process that waited.
func (s *supervisor) left(b *body) {
	s.kept = slices.DeleteFunc(s.kept, func(k *body) bool { return k == b })
	b.control.Close() // nobody is at its other end
	if !b.closed {
		b.closed = true
		s.work.Go(func() {
			if err := closeOutputs(b.outs[:]); err != nil {
				s.do(func() { s.notice(fmt.Sprintf("close the logs: %v", err)) })
			}
		})
	}
	s.progress()
}
