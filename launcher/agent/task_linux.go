package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// task is one task of the host in the present generation.
type task struct {
	protocol.TaskSpec
	generation     int
	open, reserved *socket
	heir           *body // a process that waits to be this task's; nil: one is started

	*body // its process; nil until started, and once that waits for the next generation
	now   protocol.TaskNow

	told, termed, killing bool
	regrouping            bool // told to keep its process
	reaped                bool // its process has ended; its output may go on
	finished              bool
	cause, lostPeer       string
	said                  time.Time // when a heartbeat was last passed on
	quiet                 int       // beats since the task said anything
	term, kill            alarm
	save                  save
}

// running reports whether the task's process is there.
func (t *task) running() bool { return t.body != nil && !t.reaped }

// settled reports whether the task has ended and all about it is known.
func (t *task) settled() bool { return t.body == nil || t.now.Exit != nil }

// over is the end of all that concerns the running task.
func (t *task) over() {
	t.term.stop()
	t.kill.stop()
	t.closeSockets()
}

// closeSockets gives the task's ports up.
func (t *task) closeSockets() {
	for _, s := range []*socket{t.open, t.reserved} {
		if s != nil {
			s.close()
		}
	}
}

// alarm calls a function once, at the earliest of the times it was set to.
type alarm struct {
	at    time.Time
	timer *time.Timer
}

func (a *alarm) set(d time.Duration, f func()) {
	at := time.Now().Add(d)
	if a.timer != nil {
		if at.After(a.at) {
			return
		}
		a.timer.Stop()
	}
	a.at, a.timer = at, time.AfterFunc(d, f)
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// processes lists what a task has started and is still there: its session,
// what is marked with the name that it has or was born with, and their
// descendants. A process that has left
// the session, lost its parent and cleared its environment is nobody's; the
// end of the job finds it all the same.
func (b *body) processes(as birth, job, folder string) ([]process, error) {
	all, err := below()
	return descendants(all, os.Getpid(), func(p process) bool {
		if !b.child.over() && p.session == b.child.pid {
			return true
		}
		env, err := environment(p.pid)
		return err == nil && slices.Contains(env, markTask+"="+job) && slices.Contains(env, markFolder+"="+folder) &&
			(as.in(env) || b.born.in(env))
	}), err
}

// terminate asks a task that knows no control channel, or did not follow it, to
// end. It does so once: for many programs a second one means "at once".
func (t *task) terminate() {
	if t.running() && !t.termed {
		t.termed = true
		t.child.signalGroup(unix.SIGTERM, unix.SIGCONT)
	}
}

// exit is what there is to tell about the end of the task.
func (t *task) exit(cause string) *protocol.Exit {
	e := &protocol.Exit{
		Task: t.Task, Generation: t.generation, Started: true,
		Native: t.now.Native, Finished: t.finished, Told: t.told,
		Cause: t.cause, LostPeer: t.lostPeer, Tail: t.outs[1].lastLines(), Time: time.Now(),
	}
	if e.Cause == "" && t.killing {
		e.Cause = cause
	}
	e.Code = t.child.status.ExitStatus()
	if t.child.status.Signaled() {
		e.Signal = int(t.child.status.Signal())
		e.Code = 128 + e.Signal
	}
	return e
}

// refused is the exit of a task that could not be started.
func (t *task) refused(err error) *protocol.Exit {
	code := codePlx
	if u := (unstarted{}); errors.As(err, &u) {
		code = u.code
	}
	return &protocol.Exit{Task: t.Task, Generation: t.generation, Code: code, Told: t.told, Cause: err.Error(), Time: time.Now()}
}

// makeFolder makes sure that the task's own folder is there: a later
// generation finds it as the one before left it.
func makeFolder(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", unstarted{codePlx, err}
	}
	return filepath.Clean(dir), nil
}
