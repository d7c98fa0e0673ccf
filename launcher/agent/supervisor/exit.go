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

// drainTimeout is how long to wait for the remaining output of a task whose process
// has ended.
const drainTimeout = 2 * time.Second

// follow starts the goroutines that watch a started task: its output, its
// control channel and its end.
func (ts *tasks) follow(t *task) {
	for _, o := range t.outs {
		ts.loop.background(o.run)
	}
	controlClosed := make(chan struct{})
	ts.loop.background(func() {
		defer close(controlClosed)
		for {
			m, err := t.control.Receive()
			if err != nil {
				return // the task or the supervisor has closed the channel; the task's Exit message will give the reason
			}
			ts.loop.do(func() { ts.receive(t, m) })
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
			if t.stopAsked && !ts.record.ending() { // if only this task was asked to end, kill its descendants now; at the end of the job, shutdown kills all processes
				ts.kill(t)
			}
		})
		deadline := time.Now().Add(drainTimeout)
		read := make(chan complaint, 1)
		ts.loop.background(func() { read <- readComplaint(ts.host.folder.ErrorFile(t.Task, t.generation)) })
		seen := make(chan protocol.Folder, 1)
		if t.child.Status().ExitStatus() != 0 { // inspect /dev/shm at once, before other failing tasks free their shared memory
			ts.loop.background(func() { seen <- process.ReadFolder(protocol.Shm) })
		} else {
			seen <- protocol.Folder{}
		}
		within(time.Until(deadline), controlClosed)
		quiet := within(time.Until(deadline), t.outs[0].done)
		quiet = within(time.Until(deadline), t.outs[1].done) && quiet
		var why complaint
		select {
		case why = <-read:
		case <-time.After(drainTimeout): // stop waiting: the file system of the log hangs
		}
		var shm protocol.Folder
		select {
		case shm = <-seen:
		case <-time.After(drainTimeout): // stop waiting: the file system of the log hangs
		}
		ts.loop.do(func() { ts.exited(t, quiet, why, shm) })
	})
}

// exited reports the end of a task to the driver (the process that controls
// the job). quiet is false if the task's output pipes were still open after
// drainTimeout.
func (ts *tasks) exited(t *task, quiet bool, why complaint, shm protocol.Folder) {
	exit := t.end(ts.killed, why, shm)
	ts.record.changed = true
	ts.checkpoint.answered(t, cluster.ControlMessage{Kind: cluster.Checkpoint, Request: ts.checkpoint.request,
		Cause: fmt.Sprintf("%s ended before it had saved", t.Task)}) // answered ignores this message unless a checkpoint request to the task still waits for a reply
	if !quiet {
		ts.sessions.notice(fmt.Sprintf("%s has ended, but a process that it started still holds its output open", t.Task))
	}
	ts.sessions.sendToDriver(protocol.Message{Exited: exit})
}

// end records how the task ended. killed is the reason to report if the
// supervisor had to kill the task and knows no better reason. why is the
// reason that the program wrote into its error file; it counts only if the
// exit status is not 0 and no other reason is known. shm describes /dev/shm at
// the end of the task.
func (t *task) end(killed string, why complaint, shm protocol.Folder) *protocol.Exit {
	t.closeSockets()
	t.control.Close() // close the channel: the task has ended, even if a descendant still has the other end open
	e := &protocol.Exit{
		Task: t.Task, Generation: t.generation, Started: true,
		Native: t.report.native, Finished: t.report.finished, StopRequested: t.stopAsked,
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
			e.Tail = why.traceback // report the traceback of the error file, because stderr does not contain it
		}
	}
	if e.Cause == "" && !e.StopRequested && (e.Code == goCrash || e.Signal == int(unix.SIGABRT)) {
		e.Cause = t.outs[1].crashed()
	}
	if !e.Native && e.Code != 0 && blamesPeer(e.Tail) {
		e.LostPeer = "a peer" // the program cannot name the task, because it does not know plx's names of the tasks
	}
	if e.Code == 128+int(unix.SIGKILL) && !t.killing && !t.stopAsked {
		e.OOMKills, e.OOM = t.memory.Killed(t.child.PID)
	}
	if e.Code != 0 && !t.killing && !t.stopAsked {
		e.Shm = lackOfShm(e.Code, t.outs[1], shm)
	}
	t.exit = e
	close(t.over)
	return e
}

// goCrash is the exit status of a Go program that crashed. With
// GOTRACEBACK=crash, SIGABRT ends the program instead.
const goCrash = 2
