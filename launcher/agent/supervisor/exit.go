//go:build linux

package supervisor

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// drain bounds the wait for the output of a task that has ended.
const drain = 2 * time.Second

// follow watches a task that was started until all about its end is known.
func (ts *tasks) follow(t *task) {
	for _, o := range t.outs {
		ts.loop.background(o.run)
	}
	heard := make(chan struct{})
	ts.loop.background(func() {
		defer close(heard)
		for {
			m, err := t.control.Receive()
			if err != nil {
				return // closed by the task's end or by us; the Exit tells the rest
			}
			ts.loop.do(func() { ts.hear(t, m) })
		}
	})
	ts.loop.background(func() {
		t.write(func(m cluster.ControlMessage, err error) {
			ts.loop.do(func() { ts.checkpoint.unsent(t, m, err) })
		})
	})
	ts.loop.background(func() {
		<-t.child.Done()
		ts.loop.do(func() {
			t.reaped = true
			if t.told && !ts.record.ending() { // it alone was told to end; at the end of all tasks shutdown kills what is left
				ts.kill(t)
			}
		})
		deadline := time.Now().Add(drain)
		read := make(chan complaint, 1)
		ts.loop.background(func() { read <- readComplaint(ts.host.folder.ErrorFile(t.Task, t.generation)) })
		seen := make(chan protocol.Folder, 1)
		if t.child.Status().ExitStatus() != 0 { // before others that end give up what they have there
			ts.loop.background(func() { seen <- process.Look(protocol.Shm) })
		} else {
			seen <- protocol.Folder{}
		}
		within(time.Until(deadline), heard)
		quiet := within(time.Until(deadline), t.outs[0].done)
		quiet = within(time.Until(deadline), t.outs[1].done) && quiet
		var why complaint
		select {
		case why = <-read:
		case <-time.After(drain): // the file system hangs
		}
		var shm protocol.Folder
		select {
		case shm = <-seen:
		case <-time.After(drain): // as above
		}
		ts.loop.do(func() { ts.exited(t, quiet, why, shm) })
	})
}

// exited reports the end of a task. It is called when all output was read, or, with
// quiet false, after drain.
func (ts *tasks) exited(t *task, quiet bool, why complaint, shm protocol.Folder) {
	exit := t.end(ts.killed, why, shm)
	ts.record.changed = true
	ts.checkpoint.answered(t, cluster.ControlMessage{Kind: cluster.Checkpoint, Request: ts.checkpoint.request,
		Cause: fmt.Sprintf("%s ended before it had saved", t.Task)}) // unless it has answered itself
	if !quiet {
		ts.sessions.notice(fmt.Sprintf("%s has ended, but a process that it started still holds its output open", t.Task))
	}
	ts.sessions.tell(protocol.Message{Exited: exit})
}

// end records the end of the task. killed is the cause if the task had to be killed
// and nobody said why. why is the program's own account, which counts if the program
// failed by itself. shm is what /dev/shm was like at its end.
func (t *task) end(killed string, why complaint, shm protocol.Folder) *protocol.Exit {
	t.closeSockets()
	t.control.Close() // whatever holds the other end, the task is gone
	e := &protocol.Exit{
		Task: t.Task, Generation: t.generation, Started: true,
		Native: t.report.native, Finished: t.report.finished, Told: t.told,
		Cause: t.report.cause, LostPeer: t.report.lostPeer, Tail: t.outs[1].lastLines(), Time: time.Now(),
	}
	if e.Cause == "" && t.killing {
		e.Cause = killed
	}
	status := t.child.Status()
	e.Code = status.ExitStatus()
	if status.Signaled() {
		e.Signal = int(status.Signal())
		e.Code = 128 + e.Signal
	}
	if e.Cause == "" && e.Code != 0 {
		e.Cause = why.cause
		if last := why.lastLine(); !strings.Contains(e.Tail, last) {
			e.Tail = why.traceback // stderr does not show it
		}
	}
	if e.Cause == "" && !e.Told && (e.Code == goCrash || e.Signal == int(unix.SIGABRT)) {
		e.Cause = t.outs[1].crashed()
	}
	if !e.Native && e.Code != 0 && blamesPeer(e.Tail) {
		e.LostPeer = "a peer" // which one, the program does not know by its task
	}
	if e.Code == 128+int(unix.SIGKILL) && !t.killing && !t.told {
		e.OOMKills, e.OOM = t.memory.Killed(t.child.PID)
	}
	if e.Code != 0 && !t.killing && !t.told {
		e.Shm = lackOfShm(e.Code, t.outs[1], shm)
	}
	t.exit = e
	close(t.over)
	return e
}

// goCrash is the exit status that the Go runtime chooses after a crash. With
// GOTRACEBACK=crash it aborts.
const goCrash = 2
