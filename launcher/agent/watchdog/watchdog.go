//go:build linux

// Package watchdog starts the supervisor of a job and outlives it.
//
//	w, err := watchdog.Start(folder, spec, locks)   // in "plx agent start"
//	err = w.Run()
//
// The process that the SSH server has started becomes the watchdog. Start hands its standard
// input and output, which lead to the launcher, to the supervisor. Its own end tells the
// launcher how the job's part on the host has ended, and that nothing of it is left.
//
// The supervisor writes a beat every second. The watchdog kills a supervisor that
// is stuck, before the lease ends. When the supervisor has ended, the watchdog
// kills every process that it left and deletes the secret. If the supervisor has
// recorded no verdict, the watchdog records why it ended. If the watchdog ends first,
// the supervisor ends the job's part on the host, see [Inherited]. When the lease runs
// out, the supervisor kills the tasks (its file shutdown.go), not the watchdog.
//
// The watchdog has no network connection and starts no task, so that little can
// go wrong with it.
package watchdog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/protocol"
)

// Watchdog watches one supervisor.
type Watchdog struct {
	folder     jobfolder.Folder
	stuck      int // seconds without a beat after which the supervisor is killed
	log        *log.Logger
	terms      <-chan os.Signal
	children   *process.Children
	supervisor *process.Child
	life       *os.File     // the supervisor got the specification from its other end, and sees there when this process has ended
	beats      atomic.Int64 // number of beats that the supervisor has sent
}

// starting bounds the supervisor's start.
const starting = 30 * time.Second

// Start starts the supervisor of a job and hands it the specification, the launcher's
// connection and the locks of the host's GPUs. It returns when the supervisor is ready, which
// from then on is the only one that uses the connection. With an error nothing of it is left.
// No other code of the process may wait for a child, see [process.Children]. The process keeps
// the locks to its end.
func Start(f jobfolder.Folder, spec protocol.Spec, locks []*os.File) (*Watchdog, error) {
	output, err := os.OpenFile(f.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	w := &Watchdog{folder: f, stuck: stuckAfter(spec.Lease), log: log.New(output, "watchdog: ", log.LstdFlags|log.Lmicroseconds), terms: Signals()}
	if w.children, err = process.NewChildren(); err != nil {
		return nil, err
	}
	if err := w.start(spec, output, locks); err != nil {
		_, uncleared := w.children.Clear(process.KillTime)
		return nil, fmt.Errorf("start the agent: %w", errors.Join(err, uncleared))
	}
	return w, retire()
}

// retire gives up what only the supervisor is to have now: the connection to the launcher.
func retire() error {
	_ = os.WriteFile("/proc/self/comm", []byte("plx-watchdog"), 0) // for people: its arguments stay those of "plx agent start"
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close() // the standard streams have it
	debug.FreeOSMemory()
	return errors.Join(unix.Dup3(int(null.Fd()), 0, 0), unix.Dup3(int(null.Fd()), 1, 0), os.Chdir("/"))
}

// Run returns after no process of the job is left on the host, or only processes that cannot
// be killed.
func (w *Watchdog) Run() error {
	defer w.life.Close() // nothing more is written to it
	w.watch()
	return w.end()
}

// Ended is the error of a supervisor that has recorded no verdict. It says how it ended.
type Ended struct{ How string }

func (e *Ended) Error() string { return e.How }

// Signals delivers the signals of the host that watchdog and supervisor heed: SIGTERM
// and SIGUSR1. From then on those of a terminal do nothing.
func Signals() <-chan os.Signal {
	terms, unheeded := make(chan os.Signal, 4), make(chan os.Signal, 1)
	signal.Notify(terms, unix.SIGTERM, unix.SIGUSR1)
	signal.Notify(unheeded, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE) // signal.Ignore would be inherited by tasks
	return terms
}

// start starts the supervisor and waits until it is ready.
func (w *Watchdog) start(spec protocol.Spec, output *os.File, locks []*os.File) error {
	theirs, to, err := os.Pipe() // the specification; its other end ends with this process
	if err != nil {
		return err
	}
	from, answers, err := os.Pipe() // readiness, and then beats
	if err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	attr := &syscall.ProcAttr{Dir: "/", Env: program.AgentEnvironment(os.Environ(), w.folder.Job(), w.folder.Name())}
	for _, file := range append([]*os.File{null, output, output, theirs, answers, os.Stdin, os.Stdout}, locks...) {
		attr.Files = append(attr.Files, file.Fd())
	}
	w.supervisor, err = w.children.Start(self, []string{"plx", "agent", "supervisor", string(w.folder), strconv.Itoa(len(locks))}, attr, nil)
	for _, file := range []*os.File{null, theirs, answers} {
		file.Close() // only the supervisor may hold these: their other ends wait for the end
	}
	if err != nil {
		return err
	}
	w.life = to
	return w.await(spec, to, from)
}

// await hands the specification over, and waits for the answer.
func (w *Watchdog) await(spec protocol.Spec, to, from *os.File) error {
	deadline := time.Now().Add(starting)
	to.SetDeadline(deadline) // pipes have deadlines
	from.SetDeadline(deadline)
	wrote := json.NewEncoder(to).Encode(spec)
	var r readiness
	switch err := json.NewDecoder(from).Decode(&r); {
	case err != nil:
		return fmt.Errorf("%w; see %s", errors.Join(err, wrote), w.folder.Log())
	case r.Error != "":
		return errors.New(r.Error)
	}
	from.SetDeadline(time.Time{})
	go w.hear(from)
	return nil
}

// hear counts the supervisor's beats. It ends with the supervisor.
func (w *Watchdog) hear(beats *os.File) {
	defer beats.Close() // only read
	buf := make([]byte, 64)
	for {
		if _, err := beats.Read(buf); err != nil {
			return
		}
		w.beats.Add(1)
	}
}

// Bounds of watchdog.stuck, in seconds. The watchdog counts ticks instead of
// measuring time, so that the time for which a machine was suspended does not
// count.
const (
	leastStuck = 3
	mostStuck  = 30
)

// stuckAfter returns after how many seconds without a beat a supervisor is killed.
// It is less than the lease: a stuck supervisor does not look at the lease, and
// after the lease nothing of the job may be left.
func stuckAfter(lease time.Duration) int {
	if lease <= 0 {
		return mostStuck
	}
	return min(max(int(lease.Seconds()*0.6), leastStuck), mostStuck)
}

// watch waits until the supervisor has ended. It passes the host's signals on and
// kills a supervisor that is stuck.
func (w *Watchdog) watch() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for seen, missed := int64(0), 0; ; {
		select {
		case <-w.supervisor.Done():
			return
		case sig := <-w.terms:
			w.supervisor.Signal(sig.(unix.Signal))
		case <-tick.C:
			missed++
			if now := w.beats.Load(); now != seen {
				seen, missed = now, 0
			}
			if missed == w.stuck {
				w.log.Printf("the supervisor has sent no beat for %d s: killing it", w.stuck)
				w.supervisor.Signal(unix.SIGKILL)
			}
		}
	}
}

// end kills what the supervisor has left and makes sure that state.json has a
// verdict.
func (w *Watchdog) end() error {
	state, err := w.folder.ReadState()
	known := err == nil && state.Phase == protocol.Over
	limit := process.KillTime
	if known && len(state.Unkillable) > 0 {
		limit = 0 // the supervisor has waited for them
	}
	left, err := w.children.Clear(limit)
	err = errors.Join(err, w.folder.RemoveSecret())
	if known {
		return err
	}
	how := &Ended{fmt.Sprintf("the agent's supervisor was ended (%s)", describe(w.supervisor.Status()))}
	w.log.Printf("%s; %d processes are left", how, len(left))
	state.Unkillable = left
	return errors.Join(how, err, w.folder.WriteState(jobfolder.Ended(state, how.How)))
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

// self is this very program, also after its file was replaced or removed.
const self = "/proc/self/exe"

// Descriptors that the supervisor inherits after the standard ones, in this order.
const (
	fromFD = 3 // delivers the Spec, and ends with the watchdog
	toFD   = 4 // takes one readiness, and then beats
	inFD   = 5 // what the launcher sends after the Spec
	outFD  = 6 // leads to the launcher
	lockFD = 7 // the first lock of a GPU
)

// readiness is the supervisor's answer to its start.
type readiness struct {
	Error string `json:"error,omitempty"` // why it could not start; "": it has started
}

// Inherited is what a supervisor inherits from its watchdog.
type Inherited struct {
	Spec     protocol.Spec   // of the job
	Lost     <-chan struct{} // closed when the watchdog has ended
	Launcher *Launcher       // that has sent the Spec
	Locks    []*os.File      // locks of the host's GPUs, which every task inherits
	watchdog *os.File        // takes one readiness, and then beats
}

// Inherit takes the descriptors over, among them a number of GPU locks, and receives the job's
// specification. It is called once, by the supervisor. With an error only Answer can be called.
func Inherit(locks int) (*Inherited, error) {
	for _, fd := range []int{inFD, outFD} {
		_ = unix.SetNonblock(fd, true) // else writing has no deadline, and a read does not end when the file is closed
	}
	in := &Inherited{Launcher: &Launcher{os.NewFile(inFD, "from the launcher"), os.NewFile(outFD, "to the launcher")},
		watchdog: os.NewFile(toFD, "to the watchdog")}
	for i := range locks {
		in.Locks = append(in.Locks, os.NewFile(uintptr(lockFD+i), "GPU lock"))
	}
	from := os.NewFile(fromFD, "from the watchdog")
	if err := json.NewDecoder(from).Decode(&in.Spec); err != nil {
		return in, fmt.Errorf("read the job's specification: %w", err)
	}
	lost := make(chan struct{})
	in.Lost = lost
	go func() {
		defer close(lost)
		_, _ = io.Copy(io.Discard, from) // nothing more is written: it returns when the watchdog ends
	}()
	return in, nil
}

// Beat tells the watchdog that the supervisor is alive.
func (in *Inherited) Beat() {
	_, _ = in.watchdog.Write([]byte{'.'}) // Lost tells of a watchdog that has ended
}

// Answer tells the watchdog why the supervisor could not start, or that it has started if err
// is nil. It is called once, before the first Beat.
func (in *Inherited) Answer(err error) error {
	var r readiness
	if err != nil {
		r.Error = err.Error()
	}
	return json.NewEncoder(in.watchdog).Encode(r)
}

// Launcher is the stream to and from a launcher.
type Launcher struct{ in, out *os.File }

func (l *Launcher) Read(p []byte) (int, error)         { return l.in.Read(p) }
func (l *Launcher) Write(p []byte) (int, error)        { return l.out.Write(p) }
func (l *Launcher) SetWriteDeadline(t time.Time) error { return l.out.SetWriteDeadline(t) }

// Close ends both directions. The launcher still gets all that was written.
func (l *Launcher) Close() error { return errors.Join(l.out.Close(), l.in.Close()) }
