//go:build linux

// Package watchdog starts the agent of a job and outlives its supervisor.
//
//	socket, err := watchdog.Start(ctx, folder, spec)   // in "plx agent start"
//	err = watchdog.Run(folder)                         // in "plx agent watchdog"
//
// Start starts the watchdog in a session of its own; Run starts the supervisor.
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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
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

// watchdog watches one supervisor.
type watchdog struct {
	folder     jobfolder.Folder
	locks      int // number of the GPU locks that were inherited
	stuck      int // seconds without a beat after which the supervisor is killed
	log        *log.Logger
	children   *process.Children
	supervisor *process.Child
	beats      atomic.Int64 // number of beats that the supervisor has sent
}

// Run starts the supervisor of a job. It returns after no process of the job is left on
// the host, or only processes that cannot be killed. locks is the number of GPU locks
// that the process has inherited. It holds them to its end.
func Run(f jobfolder.Folder, locks int) error {
	state, err := f.ReadState()
	if err != nil {
		return err
	}
	w := &watchdog{folder: f, locks: locks, stuck: stuckAfter(state.Lease),
		log: log.New(os.Stderr, "watchdog: ", log.LstdFlags|log.Lmicroseconds)}
	if w.children, err = process.NewChildren(); err != nil {
		return err
	}
	terms := Signals()
	life, err := w.start()
	if err != nil {
		return err
	}
	defer life.Close() // nothing is written to it
	w.watch(terms)
	return w.end()
}

// Signals delivers the signals of the host that watchdog and supervisor heed: SIGTERM
// and SIGUSR1. From then on those of a terminal do nothing.
func Signals() <-chan os.Signal {
	terms, unheeded := make(chan os.Signal, 4), make(chan os.Signal, 1)
	signal.Notify(terms, unix.SIGTERM, unix.SIGUSR1)
	signal.Notify(unheeded, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE) // signal.Ignore would be inherited by tasks
	return terms
}

// start starts the supervisor. The supervisor reads from the other end of life,
// and so sees when this process has ended.
func (w *watchdog) start() (life *os.File, err error) {
	lifeRead, life, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	defer lifeRead.Close() // the supervisor has its own
	beatRead, beatWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the supervisor: %w", err), life.Close())
	}
	defer beatWrite.Close() // the supervisor has its own
	attr := &syscall.ProcAttr{Dir: "/", Env: os.Environ(),
		Files: []uintptr{0, 1, 2, specFD, readyFD, lifeRead.Fd(), beatWrite.Fd()}}
	for i := range w.locks {
		attr.Files = append(attr.Files, uintptr(watchdogLockFD+i))
	}
	w.supervisor, err = w.children.Start(self, []string{"plx", "agent", "supervisor", string(w.folder), strconv.Itoa(w.locks)}, attr, nil)
	unix.Close(specFD) // only the supervisor may hold these: their other ends wait for the end
	unix.Close(readyFD)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the supervisor: %w", err), life.Close(), beatRead.Close())
	}
	go w.hear(beatRead)
	return life, nil
}

// hear counts the supervisor's beats. It ends with the supervisor.
func (w *watchdog) hear(beats *os.File) {
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
func (w *watchdog) watch(terms <-chan os.Signal) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for seen, missed := int64(0), 0; ; {
		select {
		case <-w.supervisor.Done():
			return
		case sig := <-terms:
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
func (w *watchdog) end() error {
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
	how := fmt.Sprintf("the agent's supervisor was ended (%s)", describe(w.supervisor.Status()))
	w.log.Printf("%s; %d processes are left", how, len(left))
	state.Unkillable = left
	return errors.Join(err, w.folder.WriteState(jobfolder.Ended(state, how)))
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

// starting bounds the agent's start.
const starting = 30 * time.Second

// Start starts the watchdog, hands the specification and the locks of the host's GPUs on
// and waits until the supervisor is ready. It returns the name of the agent's local
// socket.
func Start(ctx context.Context, f jobfolder.Folder, spec protocol.Spec, locks []*os.File) (socket string, err error) {
	specRead, specWrite, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("start the agent: %w", err)
	}
	defer specWrite.Close() // a pipe has no data to lose
	readyRead, readyWrite, err := os.Pipe()
	if err != nil {
		return "", errors.Join(fmt.Errorf("start the agent: %w", err), specRead.Close())
	}
	defer readyRead.Close() // only read
	watchdog, err := spawn(ctx, f, spec.Detached, append([]*os.File{specRead, readyWrite}, locks...))
	specRead.Close()   // the watchdog has its own
	readyWrite.Close() // the watchdog has its own
	if err != nil {
		return "", fmt.Errorf("start the agent: %w", err)
	}
	deadline := time.Now().Add(starting)
	specWrite.SetDeadline(deadline) // pipes have deadlines
	readyRead.SetDeadline(deadline)
	wrote := json.NewEncoder(specWrite).Encode(spec)
	var r Readiness
	err = json.NewDecoder(readyRead).Decode(&r)
	if err == nil && r.Error == "" {
		return r.Socket, watchdog.Process.Release()
	}
	_ = watchdog.Process.Kill() // its supervisor, if any, sees that and ends
	_ = watchdog.Wait()
	if r.Error != "" {
		return "", fmt.Errorf("start the agent: %s", r.Error)
	}
	return "", fmt.Errorf("start the agent: %w; see %s", errors.Join(err, wrote), f.Log())
}

// self is this very program, also after its file was replaced or removed.
const self = "/proc/self/exe"

// spawn starts the watchdog in a session of its own. It inherits only its log and files:
// those of specFD and readyFD, and the locks.
func spawn(ctx context.Context, f jobfolder.Folder, detached bool, files []*os.File) (*exec.Cmd, error) {
	output, err := os.OpenFile(f.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the watchdog has its own
	argv := []string{self, "agent", "watchdog", string(f), strconv.Itoa(len(files) - (watchdogLockFD - specFD))}
	if detached {
		if scope := scope(ctx); scope != nil {
			if argv[0], err = os.Executable(); err != nil {
				return nil, err
			}
			argv = append(scope, argv...)
		}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	if argv[0] == self {
		cmd.Args[0] = "plx"
	}
	cmd.Dir = "/"
	cmd.Env = program.AgentEnvironment(os.Environ(), f.Job(), f.Name())
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return cmd, nil
}

// probing bounds the question whether the user's systemd can hold a job.
const probing = 2 * time.Second

// HasScope reports whether a detached job can run in a scope of the user's systemd.
func HasScope(ctx context.Context) bool { return scope(ctx) != nil }

// scope returns the command line that puts a program into a scope of the user's
// systemd, or nil if that does not work. In a scope, logind does not kill the program
// when the login ends. systemd-run executes the program in its own place; scope
// makes sure that the program keeps its descriptors.
func scope(ctx context.Context) []string {
	path, err := exec.LookPath("systemd-run")
	if err != nil || os.Getenv("XDG_RUNTIME_DIR") == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probing)
	defer cancel()
	argv := []string{path, "--user", "--scope", "--quiet", "--collect", "--"}
	probe := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], "/bin/sh", "-c", "test -e /proc/self/fd/3")...)
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil
	}
	defer null.Close() // only read
	probe.ExtraFiles = []*os.File{null}
	probe.WaitDelay = probing
	if err := probe.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return argv
}

// Descriptors that watchdog and supervisor inherit after the standard ones.
const (
	specFD  = 3 // delivers the Spec
	readyFD = 4 // takes one Readiness
	lifeFD  = 5 // supervisor: read end of a pipe that the watchdog holds open
	beatFD  = 6 // supervisor: write end of a pipe that the watchdog reads

	watchdogLockFD   = 5 // watchdog: the first lock of a GPU
	supervisorLockFD = 7 // supervisor: the first lock of a GPU
)

// Readiness is what the supervisor answers to "plx agent start".
type Readiness struct {
	Socket string `json:"socket,omitempty"` // name of the agent's local socket; "" with an Error
	Error  string `json:"error,omitempty"`  // why the agent could not start; "": it has started
}

// Inherited is what a supervisor inherits from its watchdog.
type Inherited struct {
	Lost  <-chan struct{} // closed when the watchdog has ended
	Locks []*os.File      // locks of the host's GPUs, which every task inherits
	beats *os.File        // pipe to the watchdog; Beat writes a byte
}

// Inherit takes the descriptors over, among them a number of GPU locks. It is called once,
// by the supervisor.
func Inherit(locks int) *Inherited {
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		_, _ = os.NewFile(lifeFD, "watchdog").Read(make([]byte, 1)) // nobody writes: it returns when the watchdog ends
	}()
	in := &Inherited{Lost: lost, beats: os.NewFile(beatFD, "beat")}
	for i := range locks {
		in.Locks = append(in.Locks, os.NewFile(uintptr(supervisorLockFD+i), "GPU lock"))
	}
	return in
}

// Beat tells the watchdog that the supervisor is alive.
func (in *Inherited) Beat() {
	_, _ = in.beats.Write([]byte{'.'}) // Lost tells of a watchdog that has ended
}

// Answer tells "plx agent start" how the start went. It is called once.
func Answer(r Readiness) error {
	pipe := os.NewFile(readyFD, "ready")
	return errors.Join(json.NewEncoder(pipe).Encode(r), pipe.Close())
}

// ReceiveSpec reads the job's specification from "plx agent start".
func ReceiveSpec() (protocol.Spec, error) {
	var spec protocol.Spec
	pipe := os.NewFile(specFD, "spec")
	defer pipe.Close() // only read
	if err := json.NewDecoder(pipe).Decode(&spec); err != nil {
		return spec, fmt.Errorf("read the job's specification: %w", err)
	}
	return spec, nil
}
