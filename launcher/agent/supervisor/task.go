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

// task is one task of the host in one generation.
type task struct {
	protocol.TaskSpec
	generation     int
	open, reserved *sockets.Socket // open: the task listens on it; reserved: for a program that does not use plx's trainer
	*running                       // the process and its streams; nil until it is started

	report   report         // what the task has said on its control channel
	reported *reported      // what it reports of its training
	reaped   bool           // the process has ended; its output may still arrive. Implies running != nil
	exit     *protocol.Exit // how the task ended; nil until its output was read too. Implies running == nil or reaped
	over     chan struct{}  // closed when exit is set; never closed if the task could not be started

	inquiry *inquiry // the last question for stacks; nil: none was asked
	golang  bool     // the task's program is written in Go, as far as one has looked

	memory process.Memory // before the task was started

	told, termed, killing bool     // the task was told to end; got SIGTERM; its processes are being killed
	interrupted           bool     // the task got SIGINT
	term, kill            deadline // when to send SIGTERM, and when to kill; zero: no time is set
}

// newTask opens the sockets of a task. used are addresses that were reserved before: what
// an earlier generation left on another host may still connect to them.
func newTask(spec protocol.TaskSpec, generation int, place sockets.Place, used map[string]bool, reported *reported) (*task, error) {
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

// closeSockets gives the task's ports up.
func (t *task) closeSockets() {
	for _, s := range []*sockets.Socket{t.open, t.reserved} {
		if s != nil {
			s.Close()
		}
	}
}

// alive reports whether the task's process runs.
func (t *task) alive() bool { return t.running != nil && !t.reaped }

// now is what State says of the task.
func (t *task) now() *protocol.TaskNow {
	now := protocol.TaskNow{Native: t.report.native, ToleratesLoss: t.report.tolerates, Step: t.report.step,
		Word: t.report.progress, Failed: t.report.failed, Exit: t.exit}
	if t.running != nil {
		now.PID = t.child.PID
	}
	return &now
}

// said is the message that passes m on to the driver.
func (t *task) said(m cluster.ControlMessage) protocol.Message {
	return protocol.Message{Said: &protocol.Said{Task: t.Task, Generation: t.generation, Message: m}}
}

// hear notes a message of the task.
func (t *task) hear(m cluster.ControlMessage) {
	t.report.hear(m)
	t.reported.hear(m)
	if m.Kind != cluster.Hello {
		return
	}
	if m.Version != cluster.ControlVersion {
		t.control.Close() // the task fails when it sees that
	}
	if t.told {
		t.sendStop() // before, it was told by a signal only
	}
}

// froze counts a beat of the supervisor. It reports whether the task is native and
// has sent no message for longer than limit.
func (t *task) froze(limit time.Duration) bool {
	if !t.alive() || !t.report.native || t.report.finished || t.told || t.killing {
		return false
	}
	return t.report.froze(limit)
}

// tellToEnd asks the task to end. A foreign task gets SIGTERM, or after a Ctrl-C first
// SIGINT, as on a terminal, and SIGTERM after half of the grace. A native one is told on
// the control channel, and gets SIGTERM after half of the grace.
func (t *task) tellToEnd(grace time.Duration, interrupt bool) {
	first := !t.told
	t.told = true
	if !t.report.native && interrupt {
		if t.alive() && !t.termed && !t.interrupted { // once
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

// sendStop tells the task to end. A task that does not read it gets a signal later.
func (t *task) sendStop() { t.send(cluster.ControlMessage{Kind: cluster.Stop}) }

// terminate sends SIGTERM, once: many programs take a second one to mean "at once". So does
// plx's trainer after a SIGINT, which it got before it had said what it is.
func (t *task) terminate() {
	if t.alive() && !t.termed && !(t.interrupted && t.report.native) {
		t.termed = true
		t.child.SignalGroup(unix.SIGTERM, unix.SIGCONT)
	}
}

// startKilling notes that the task is being killed. It reports whether it was not.
func (t *task) startKilling() bool {
	if t.killing {
		return false
	}
	t.killing = t.alive()
	return true
}

// report is what a task has said on its control channel.
type report struct {
	native    bool                    // the task has sent hello, so it uses plx's trainer
	step      int64                   // highest step that the task has reported; 0: none
	tolerates bool                    // the task has said that the job tolerates the loss of another worker
	finished  bool                    // the task has said that its work is done
	failed    *cluster.ControlMessage // the task's report of its own failure; nil: none
	progress  *cluster.ControlMessage // the task's last message with a step, except messages about checkpoints; nil: none
	cause     string                  // why the task failed, as the task or the supervisor says; "": not known
	lostPeer  string                  // the peer whose loss the task blames for its failure; "": none
	silent    int                     // seconds since the task's last message, counted as beats of the supervisor
	passed    time.Time               // when a heartbeat was last sent on to the driver; zero: the next one is sent on at once
}

// hear notes a message.
func (r *report) hear(m cluster.ControlMessage) {
	r.silent = 0
	switch m.Kind {
	case cluster.Hello:
		r.native = true
		if m.Version != cluster.ControlVersion {
			r.cause = fmt.Sprintf("it speaks version %d of the control channel, this plx speaks %d: build both from one release", m.Version, cluster.ControlVersion)
		}
	case cluster.Heartbeat:
		if r.step <= m.From && m.Step > m.From {
			r.passed = time.Time{} // the driver waits for the first step
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

// passOn reports whether the driver is sent a heartbeat: one a second.
func (r *report) passOn() bool {
	if time.Since(r.passed) < time.Second {
		return false
	}
	r.passed = time.Now()
	return true
}

// froze counts a beat of the supervisor. It reports whether the task has sent no
// message for longer than limit, and then notes that as the cause of its failure.
func (r *report) froze(limit time.Duration) bool {
	if r.silent++; time.Duration(r.silent)*beat <= limit {
		return false
	}
	if r.cause == "" {
		r.cause = fmt.Sprintf("it froze: no heartbeat for %s", limit)
	}
	return true
}
