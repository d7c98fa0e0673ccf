//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// tasks holds the tasks that this agent prepared last; a restart of the job
// prepares new ones. Its methods start and end the tasks, and process their
// messages.
type tasks struct {
	*parts
	checkpoint *checkpoint

	all    map[cluster.Task]*task // tasks by name; nil before this agent first prepares tasks
	killed string                 // reason in the Exit message of a task that had to be killed and reported no reason itself
}

// launched returns the tasks whose process was started, including those that
// have ended.
func (ts *tasks) launched() []*task {
	var started []*task
	for _, t := range ts.all {
		if t.running != nil {
			started = append(started, t)
		}
	}
	return started
}

// alive reports whether the process of any task is running.
func (ts *tasks) alive() bool {
	for _, t := range ts.all {
		if t.alive() {
			return true
		}
	}
	return false
}

// now returns the descriptions of all tasks for the State message.
func (ts *tasks) now() map[string]*protocol.TaskState {
	all := make(map[string]*protocol.TaskState, len(ts.all))
	for name, t := range ts.all {
		all[name.String()] = t.now()
	}
	return all
}

// start starts the tasks in layout. For a task that cannot be started, it
// sends an Exit message at once.
func (ts *tasks) start(layout protocol.Prepare, m protocol.Start) {
	notify := func(text string) { ts.loop.do(func() { ts.sessions.notice(text) }) }
	for _, spec := range layout.Tasks {
		t := ts.all[spec.Task]
		r, err := launch{host: ts.host, task: t, layout: layout, start: m, notify: notify}.run()
		if err != nil {
			t.closeSockets()
			t.exit = &protocol.Exit{Task: t.Task, Generation: t.generation, Code: program.ExitCode(err), StopRequested: t.stopAsked, Cause: err.Error(), Time: time.Now()}
			ts.sessions.sendToDriver(protocol.Message{Exited: t.exit})
			continue
		}
		t.running = r
		ts.follow(t)
	}
}

// receive processes a control message of a task. It forwards the message to
// the driver (the process that controls the job) if the driver needs it.
func (ts *tasks) receive(t *task, m cluster.ControlMessage) {
	if t.exit != nil {
		return
	}
	t.receive(m)
	switch m.Kind {
	case cluster.Heartbeat:
		ts.record.stepped = true
		if !t.report.forwardNow() {
			return
		}
	case cluster.Checkpoint:
		ts.record.stepped = true
		ts.checkpoint.answered(t, m)
		return
	case cluster.Stacks:
		t.inquiry.receive(m)
		return
	case cluster.Hello, cluster.Failed, cluster.ToleratesLoss:
		ts.record.changed = true
	case cluster.Finished:
	default:
		ts.host.log.Printf("%s sent a control message of unknown kind %q", t.Task, m.Kind)
		return
	}
	ts.sessions.sendToDriver(t.wrap(m))
}

// killFrozen must be called once a second. It kills tasks whose heartbeats
// have stopped for longer than Spec.Freeze. It counts its calls instead of the
// time, because after the whole host was suspended, the elapsed time would be
// too long. It informs the driver (the process that controls the job) before
// the kill, because the kill may fail.
func (ts *tasks) killFrozen() {
	if ts.host.spec.Freeze <= 0 {
		return
	}
	for _, t := range ts.all {
		if t.froze(ts.host.spec.Freeze) {
			ts.sessions.sendToDriver(t.wrap(cluster.ControlMessage{Kind: cluster.Failed, Cause: t.report.cause}))
			ts.kill(t)
		}
	}
}

// stop asks the tasks in m to end, and has them killed after the grace period.
func (ts *tasks) stop(m protocol.Stop) {
	if ts.record.ending() {
		return
	}
	names := m.Tasks
	if len(names) == 0 {
		for name := range ts.all {
			names = append(names, name)
		}
	}
	for _, name := range names {
		t := ts.all[name]
		if t == nil || !t.alive() {
			continue
		}
		if m.Quit && t.golang && !t.report.native && !t.termed {
			t.termed = true
			t.child.Signal(unix.SIGQUIT) // a Go program prints its stacks on SIGQUIT; only the task's first process gets the signal, because other programs would dump core
		}
		t.askToEnd(m.Grace, m.Interrupt)
		t.kill.set(m.Grace)
	}
}

// advance sends SIGTERM or SIGKILL to tasks whose deadline has passed. The
// event loop calls it after every function that it runs.
func (ts *tasks) advance() {
	for _, t := range ts.all {
		if t.exit != nil {
			continue
		}
		if t.term.passed() {
			t.terminate()
		}
		if t.kill.passed() {
			ts.kill(t)
		}
	}
}

// end asks all tasks to end. killed is the reason to report for a task that
// must be killed; "" keeps the reason of an earlier call.
func (ts *tasks) end(grace time.Duration, killed string) {
	if killed != "" {
		ts.killed = killed
	}
	for _, t := range ts.all {
		if t.alive() {
			t.askToEnd(grace, false)
		}
	}
}

// kill kills all processes that belong to a task, in the background.
func (ts *tasks) kill(t *task) {
	if !t.startKilling() {
		return
	}
	mark := process.TaskMark{Job: ts.host.spec.Job, Folder: ts.host.spec.Folder, Task: t.Task, Generation: t.generation}
	ts.loop.background(func() {
		list := func() ([]process.Process, error) { return process.OfTask(t.child, mark) }
		left, err := process.Sweep(list, process.KillTime)
		ts.loop.do(func() { ts.unkillable(t.Task.String(), left, err) })
	})
}

// clear kills every descendant of this process in the background. It then
// waits until each task's end is recorded, and closes the log files (spools).
// Finally it calls done, on the supervisor's event loop, with the error of
// closing. whose says in messages whose processes are killed, such as "the
// job".
func (ts *tasks) clear(whose string, done func(error)) {
	started := ts.launched()
	for _, t := range started {
		t.startKilling()
	}
	ts.loop.background(func() {
		left, err := ts.host.children.Clear(process.KillTime)
		deadline := time.Now().Add(drainTimeout + time.Second)
		for _, t := range started {
			within(time.Until(deadline), t.over)
		}
		// From now on, only processes that survived SIGKILL can still write to
		// the log files.
		deadline = time.Now().Add(drainTimeout)
		var closing error
		for _, t := range started {
			closing = errors.Join(closing, t.outs[0].close(deadline), t.outs[1].close(deadline))
		}
		saved := make(chan struct{})
		ts.loop.background(func() {
			defer close(saved)
			ts.host.saveMetrics(started)
			ts.host.saveUse()
			for _, t := range started {
				t.reported.closeEvents()
			}
		})
		within(drainTimeout, saved) // limit the wait, because the disk may hang
		ts.loop.do(func() {
			ts.unkillable(whose, left, err)
			done(closing)
		})
	})
}

// unkillable reports the pids in left, whose processes survived SIGKILL, and
// err, which is an error of listing processes.
func (ts *tasks) unkillable(whose string, left []int, err error) {
	if err != nil {
		ts.sessions.notice(fmt.Sprintf("list processes: %v", err))
	}
	if len(left) > 0 {
		ts.record.Unkillable, ts.record.changed = left, true
		ts.sessions.notice(fmt.Sprintf("processes %v of %s did not end when killed: stuck in the kernel, or another user's", left, whose))
	}
}

// retire closes the sockets of the tasks, so that plx can start the tasks anew
// (the next generation). It fails if one of the tasks has not ended.
func (ts *tasks) retire() error {
	for _, t := range ts.all {
		if t.running != nil && t.exit == nil {
			return fmt.Errorf("%s of generation %d did not end when killed", t.Task, t.generation)
		}
		t.closeSockets()
	}
	return nil
}
