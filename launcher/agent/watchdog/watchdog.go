//go:build linux

// Package watchdog starts the supervisor of a job (the agent's process that
// runs the tasks) and cleans up after it.
//
//	w, err := watchdog.Start(folder, spec, locks)   // in "plx agent start"
//	err = w.Run()
//
// The process "plx agent start", a child of the SSH server, becomes the
// watchdog. Start passes its standard input and output, which are connected to
// the launcher, to the supervisor. From the exit status of the watchdog, the
// launcher learns how the job ended on the host, and that no process of the
// job is left.
//
// The supervisor sends a beat every second. If the supervisor is stuck, the
// watchdog kills it before the lease ends. When the supervisor has ended, the
// watchdog kills every process that is left and deletes the job's secret. If
// the supervisor has recorded no verdict, the watchdog records why the
// supervisor ended. If the watchdog ends first, the supervisor ends the job on
// the host, see [Inherited]. When the lease expires, the supervisor kills the
// tasks (its file shutdown.go), not the watchdog.
//
// The watchdog has no network connection and starts no task, so that few
// things can go wrong in it.
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

// Watchdog watches one supervisor process.
type Watchdog struct {
	folder     jobfolder.Folder
	stuck      int // number of seconds without a heartbeat after which the watchdog kills the supervisor
	log        *log.Logger
	terms      <-chan os.Signal
	children   *process.Children
	supervisor *process.Child
	life       *os.File     // write end of a pipe to the supervisor; it carries the Spec, and its end of file shows the supervisor that this process has ended
	beats      atomic.Int64 // number of heartbeats received from the supervisor
}

// startTimeout is how long to wait for the supervisor (the process that runs
// the tasks) to report that it is ready.
const startTimeout = 30 * time.Second

// Start starts the supervisor of a job (the process that runs the tasks) and
// waits until it is ready. It passes the specification, the launcher's
// connection and the locks of the host's GPUs to the supervisor. Afterwards
// only the supervisor uses the connection, but both processes hold the locks.
// If Start fails, no process is left. No other code of this process may wait
// for children, see [process.Children].
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
	return w, dropLauncher()
}

// dropLauncher closes this process's copy of the connection to the launcher.
// From now on only the supervisor (the process that runs the tasks) uses the
// connection.
func dropLauncher() error {
	_ = os.WriteFile("/proc/self/comm", []byte("plx-watchdog"), 0) // name of this process in ps and top; its arguments remain "plx agent start"
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close() // Dup3 below has duplicated the descriptor
	debug.FreeOSMemory()
	return errors.Join(unix.Dup3(int(null.Fd()), 0, 0), unix.Dup3(int(null.Fd()), 1, 0), os.Chdir("/"))
}

// Run watches the supervisor (the process that runs the tasks). It returns
// when no process of the job is left on the host, except processes that cannot
// be killed.
func (w *Watchdog) Run() error {
	defer w.life.Close() // a pipe has no buffered data, so Close cannot lose any
	w.watch()
	return w.end()
}

// SupervisorEnded is the error of Run if the supervisor has ended without
// recording a verdict (how the job ended). How describes the end of the
// supervisor, for example the signal that killed it.
type SupervisorEnded struct{ How string }

func (e *SupervisorEnded) Error() string { return e.How }

// Signals returns a channel of the signals SIGTERM and SIGUSR1, which the
// watchdog process and the supervisor process handle. It also makes the
// process ignore a terminal's signals.
func Signals() <-chan os.Signal {
	terms, ignored := make(chan os.Signal, 4), make(chan os.Signal, 1)
	signal.Notify(terms, unix.SIGTERM, unix.SIGUSR1)
	signal.Notify(ignored, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE) // do not use signal.Ignore here, because tasks would inherit the ignored signals
	return terms
}

// start starts the supervisor process (which runs the tasks) and waits until
// it is ready.
func (w *Watchdog) start(spec protocol.Spec, output *os.File, locks []*os.File) error {
	theirs, to, err := os.Pipe() // pipe for the Spec; end of file tells the supervisor that this process has ended
	if err != nil {
		return err
	}
	from, answers, err := os.Pipe() // pipe for the supervisor's readiness message and heartbeats
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
		file.Close() // close this process's copies, so that the end of the supervisor closes the pipes
	}
	if err != nil {
		return err
	}
	w.life = to
	return w.await(spec, to, from)
}

// await sends the specification to the supervisor and waits until it reports
// that it is ready.
func (w *Watchdog) await(spec protocol.Spec, to, from *os.File) error {
	deadline := time.Now().Add(startTimeout)
	to.SetDeadline(deadline) // ignore the error: pipes always support deadlines
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
	go w.countBeats(from)
	return nil
}

// countBeats counts the supervisor's heartbeats until the supervisor ends.
func (w *Watchdog) countBeats(beats *os.File) {
	defer beats.Close() // the pipe was only read
	buf := make([]byte, 64)
	for {
		if _, err := beats.Read(buf); err != nil {
			return
		}
		w.beats.Add(1)
	}
}

// Limits of Watchdog.stuck, in seconds. The watchdog counts the ticks of a
// timer instead of measuring time, so that it does not count the time during
// which the machine was suspended.
const (
	leastStuck = 3
	mostStuck  = 30
)

// stuckAfter returns the number of seconds without a heartbeat after which the
// watchdog kills the supervisor. This time is shorter than the lease, because
// a stuck supervisor cannot check the lease, and no process of the job may
// outlive the lease.
func stuckAfter(lease time.Duration) int {
	if lease <= 0 {
		return mostStuck
	}
	return min(max(int(lease.Seconds()*0.6), leastStuck), mostStuck)
}

// watch waits until the supervisor has ended. During this time it forwards
// SIGTERM and SIGUSR1 to the supervisor, and kills a stuck supervisor.
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

// end kills all processes that the supervisor has left. If state.json has no
// verdict (how the job ended), it records one.
func (w *Watchdog) end() error {
	state, err := w.folder.ReadState()
	known := err == nil && state.Phase == protocol.Over
	limit := process.KillTime
	if known && len(state.Unkillable) > 0 {
		limit = 0 // do not wait for unkillable processes, because the supervisor (the process that ran the tasks) has already waited
	}
	left, err := w.children.Clear(limit)
	err = errors.Join(err, w.folder.RemoveSecret())
	if known {
		return err
	}
	how := &SupervisorEnded{fmt.Sprintf("the agent's supervisor was ended (%s)", describe(w.supervisor.Status()))}
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

// self is the path of this executable, which works even after the file was
// replaced or removed.
const self = "/proc/self/exe"

// Descriptors that the supervisor inherits from the watchdog, after the
// standard streams.
const (
	fromFD = 3 // pipe from the watchdog: the Spec (description of the job), then end of file when the watchdog has ended
	toFD   = 4 // pipe to the watchdog: one readiness message, then heartbeats
	inFD   = 5 // standard input of the command "plx agent start", which the launcher runs over SSH: the launcher's messages after the Spec
	outFD  = 6 // standard output of the command "plx agent start": messages to the launcher
	lockFD = 7 // first of the GPU locks, one descriptor each
)

// readiness is the message in which the supervisor (the process that runs the
// tasks) reports the result of its start.
type readiness struct {
	Error string `json:"error,omitempty"` // why the supervisor could not start; "" if it has started
}

// Inherited is what a supervisor (the process that runs the tasks) gets from
// the watchdog process that starts it.
type Inherited struct {
	Spec     protocol.Spec   // specification of the job
	Lost     <-chan struct{} // closed when the watchdog process has ended
	Launcher *Launcher       // connection to the launcher that has sent the Spec
	Locks    []*os.File      // locks of the host's GPUs, which every task inherits too
	watchdog *os.File        // pipe to the watchdog: one readiness message, then heartbeats
}

// Inherit opens the inherited descriptors and receives the job's
// specification. locks is the number of GPU locks among the descriptors. The
// supervisor calls Inherit once. If Inherit fails, only the method Answer of
// its result may be called.
func Inherit(locks int) (*Inherited, error) {
	for _, fd := range []int{inFD, outFD} {
		_ = unix.SetNonblock(fd, true) // write deadlines need this, and Close can then interrupt a pending read
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
		_, _ = io.Copy(io.Discard, from) // no more data comes, so Copy returns when the watchdog has ended
	}()
	return in, nil
}

// Beat tells the watchdog that the supervisor is alive.
func (in *Inherited) Beat() {
	_, _ = in.watchdog.Write([]byte{'.'}) // an error means that the watchdog has ended, and the channel Lost reports this
}

// Answer reports to the watchdog that the supervisor has started or, if err is
// not nil, why it could not start. The supervisor must call it once, before
// the first Beat.
func (in *Inherited) Answer(err error) error {
	var r readiness
	if err != nil {
		r.Error = err.Error()
	}
	return json.NewEncoder(in.watchdog).Encode(r)
}

// Launcher is the connection to the launcher (plx on the user's machine): a
// pair of pipes from the SSH server.
type Launcher struct{ in, out *os.File }

func (l *Launcher) Read(p []byte) (int, error)         { return l.in.Read(p) }
func (l *Launcher) Write(p []byte) (int, error)        { return l.out.Write(p) }
func (l *Launcher) SetWriteDeadline(t time.Time) error { return l.out.SetWriteDeadline(t) }

// Close closes the two pipes to the launcher. The launcher still receives
// everything that was written before.
func (l *Launcher) Close() error { return errors.Join(l.out.Close(), l.in.Close()) }
