//go:build linux

package supervisor

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// task is one task on this host, in one generation (run of all tasks).
type task struct {
	protocol.TaskSpec
	generation     int
	open, reserved *sockets.Socket // open is inherited by the task, which listens on it; reserved keeps a second port for programs without plx's trainer
	*running                       // process with its streams; nil until the task is started

	report   report         // what the task has reported on its control channel
	reported *reported      // training metrics of the task
	reaped   bool           // true once the process has ended, although its output may still arrive; implies running != nil
	exit     *protocol.Exit // how the task ended; nil until its output was read completely; implies running == nil or reaped
	over     chan struct{}  // closed when exit is set; never closed if the task could not be started

	inquiry *inquiry // last request for the task's stacks; nil before the first one
	golang  bool     // true if the task runs a Go program; false until its stacks were collected once

	memory process.Memory // counters of OOM kills (processes killed because memory ran out), read before the task was started

	stopAsked, termed, killing bool     // stopAsked: the task was asked to end; termed: SIGTERM was sent; killing: its processes are being killed
	interrupted                bool     // true once SIGINT was sent
	term, kill                 deadline // when to send SIGTERM, and when to kill the task; the zero value means never
}

// newTask creates a task with its two sockets. used are the addresses of
// earlier tasks. The new task must get other addresses, because leftover
// processes on other hosts may still connect to the old ones.
func newTask(spec protocol.TaskSpec, generation int, place sockets.ListenRange, used map[string]bool, reported *reported) (*task, error) {
	t := &task{TaskSpec: spec, generation: generation, reported: reported, over: make(chan struct{}), memory: process.ReadMemory()}
	var err error
	if t.open, err = place.Open(true); err == nil {
		t.reserved, err = place.Reserve(used)
	}
	if err != nil {
		t.closeSockets()
		return nil, err
	}
	return t, nil
}

// closeSockets closes the task's sockets, which frees their ports.
func (t *task) closeSockets() {
	for _, s := range []*sockets.Socket{t.open, t.reserved} {
		if s != nil {
			s.Close()
		}
	}
}

// alive reports whether the task's process is running.
func (t *task) alive() bool { return t.running != nil && !t.reaped }

// now returns the description of the task for the State message.
func (t *task) now() *protocol.TaskState {
	now := protocol.TaskState{Native: t.report.native, ToleratesLoss: t.report.tolerates, Step: t.report.step,
		LastProgress: t.report.progress, Failed: t.report.failed, Exit: t.exit}
	if t.running != nil {
		now.PID = t.child.PID
	}
	return &now
}

// wrap returns a protocol message that carries the task's control message m to
// the driver (the process that controls the job).
func (t *task) wrap(m cluster.ControlMessage) protocol.Message {
	return protocol.Message{TaskReport: &protocol.TaskMessage{Task: t.Task, Generation: t.generation, Message: m}}
}

// receive processes a message from the task's control channel.
func (t *task) receive(m cluster.ControlMessage) {
	t.report.receive(m)
	t.reported.receive(m)
	if m.Kind != cluster.Hello {
		return
	}
	if m.Version != cluster.ControlVersion {
		t.control.Close() // close the control channel, which makes the task fail
	}
	if t.stopAsked {
		t.sendStop() // the task was asked to end before it could read messages: send the stop message now
	}
}

// froze must be called once a second. It reports whether a task that uses
// plx's trainer has sent no message for longer than limit.
func (t *task) froze(limit time.Duration) bool {
	if !t.alive() || !t.report.native || t.report.finished || t.stopAsked || t.killing {
		return false
	}
	return t.report.froze(limit)
}

// askToEnd asks the task to end. A task that uses plx's trainer gets a message
// on its control channel, and SIGTERM after half of the grace period. Another
// task gets SIGTERM at once. If the user has pressed Ctrl-C (interrupt), such
// a task gets SIGINT, as on a terminal, and SIGTERM after half of the grace
// period.
func (t *task) askToEnd(grace time.Duration, interrupt bool) {
	first := !t.stopAsked
	t.stopAsked = true
	if !t.report.native && interrupt {
		if t.alive() && !t.termed && !t.interrupted { // send SIGINT only once
			t.interrupted = true
			t.child.SignalGroup(unix.SIGINT, unix.SIGCONT)
		}
		t.term.set(grace / 2)
		return
	}
	if !t.report.native {
		t.terminate()
		return
	}
	t.term.set(grace / 2)
	if first {
		t.sendStop()
	}
}

// sendStop sends the task a control message that asks it to end. If the task
// does not read the message, the supervisor (the agent process that runs the
// tasks) sends signals later.
func (t *task) sendStop() { t.send(cluster.ControlMessage{Kind: cluster.Stop}) }

// terminate sends SIGTERM at most once, because many programs take a second
// signal as "end at once". For the same reason it sends no SIGTERM to a task
// of plx's trainer that has already got SIGINT.
func (t *task) terminate() {
	if t.alive() && !t.termed && !(t.interrupted && t.report.native) {
		t.termed = true
		t.child.SignalGroup(unix.SIGTERM, unix.SIGCONT)
	}
}

// startKilling records that the task is being killed. It returns false if that
// was recorded before.
func (t *task) startKilling() bool {
	if t.killing {
		return false
	}
	t.killing = t.alive()
	return true
}

// report is what a task has reported on its control channel.
type report struct {
	native    bool                    // true once the task has sent the hello message, which shows that it uses plx's trainer
	step      int64                   // highest step number reported so far; 0 before the first one
	tolerates bool                    // true if the task has reported that the job can continue without another worker
	finished  bool                    // true once the task has reported that its work is complete
	failed    *cluster.ControlMessage // the task's Failed message; nil if it has sent none
	progress  *cluster.ControlMessage // last message with a step number, except about checkpoints; nil before the first one
	cause     string                  // why the task failed, as reported by the task or found by the supervisor (the agent process that runs it); "" if unknown
	lostPeer  string                  // name of the task whose loss made this task fail; "" if there is none
	silent    int                     // seconds since the task's last message: the supervisor increments it once per second
	forwarded time.Time               // when the task's last heartbeat was forwarded to the driver (the process that controls the job); the zero time makes forwardNow forward the next one
}

// receive records the content of a control message.
func (r *report) receive(m cluster.ControlMessage) {
	r.silent = 0
	switch m.Kind {
	case cluster.Hello:
		r.native = true
		if m.Version != cluster.ControlVersion {
			r.cause = fmt.Sprintf("it speaks version %d of the control channel, this plx speaks %d: build both from one release", m.Version, cluster.ControlVersion)
		}
	case cluster.Heartbeat:
		if r.step <= m.From && m.Step > m.From {
			r.forwarded = time.Time{} // forward the first step at once, because the driver (the process that controls the job) waits for it
		}
		r.step = max(r.step, m.Step)
	case cluster.Checkpoint:
		r.step = max(r.step, m.Step)
		return
	case cluster.Failed:
		r.cause, r.lostPeer, r.failed = m.Cause, m.Peer, &m
		r.step = max(r.step, m.Step)
	case cluster.ToleratesLoss:
		r.tolerates = true
	case cluster.Finished:
		r.finished = true
	default:
		return
	}
	if m.Step > 0 {
		r.progress = &m
	}
}

// forwardNow reports whether a heartbeat must be forwarded now to the driver
// (the process that controls the job). At most one heartbeat per second is
// forwarded.
func (r *report) forwardNow() bool {
	if time.Since(r.forwarded) < time.Second {
		return false
	}
	r.forwarded = time.Now()
	return true
}

// froze must be called once a second. It reports whether the task has sent no
// message for longer than limit. If so, it records this as the cause of the
// failure.
func (r *report) froze(limit time.Duration) bool {
	if r.silent++; time.Duration(r.silent)*beat <= limit {
		return false
	}
	if r.cause == "" {
		r.cause = fmt.Sprintf("it froze: no heartbeat for %s", limit)
	}
	return true
}
