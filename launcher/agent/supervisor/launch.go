//go:build linux

package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/trainer/cluster"
)

// launch contains all data for starting the process of one task.
type launch struct {
	*host
	task   *task
	layout protocol.Prepare // the Prepare request from the driver (the process that controls the job), with the tasks of this host
	start  protocol.Start   // the driver's Start request, with the addresses of all tasks of the job
	notify func(string)     // shows a message to the user if output of the task was lost
}

// run starts the task's process and returns it with its output streams and
// control channel.
func (l launch) run() (*running, error) {
	own := filepath.Clean(l.folder.Task(l.task.Task))
	if err := os.MkdirAll(own, 0o700); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(l.folder.ErrorFile(l.task.Task, l.task.generation)), 0o700); err != nil {
		return nil, err
	}
	dir, err := l.directory(own)
	if err != nil {
		return nil, err
	}
	if err := l.folder.RecordTaskFolder(dir); err != nil {
		return nil, err
	}
	cores := l.share()
	login, err := program.Activate(l.login, l.spec.Command.Venv)
	if err != nil {
		return nil, err
	}
	env := program.Environment(login, l.spec, l.contract(own, len(cores)), dir)
	command, env, dir, err := l.command(env, dir)
	if err != nil {
		return nil, err
	}
	stacks := jobfolder.StacksOf(l.folder)
	if err := stacks.Prepare(); err != nil {
		return nil, err
	}
	env = program.WithPythonStacks(env, stacks.Python(), stacks.PythonFile(l.task.Task, l.task.generation))
	r := &running{queue: make(chan cluster.ControlMessage, maxQueued)}
	ours, err := r.connect(l.task, l.folder.Logs(), l.spec.LogLimit, l.notify)
	defer func() {
		for _, f := range ours {
			f.Close() // the child process has its own copies
		}
		l.task.open.CloseSocket()
	}()
	if err == nil {
		if !l.spec.Bind {
			cores = nil
		}
		attr := &syscall.ProcAttr{Dir: dir, Env: env,
			Files: l.withLocks(ours[0].Fd(), ours[1].Fd(), ours[2].Fd(), uintptr(l.task.open.FD), ours[3].Fd()), // the order determines the descriptor numbers, such as program.ListenFD
			Sys: &syscall.SysProcAttr{
				Setsid: true,
				// The watchdog is the parent process of the supervisor. If
				// only the supervisor is killed, the watchdog kills the task.
				// If both are killed, the kernel kills the task because of
				// Pdeathsig.
				Pdeathsig: syscall.SIGKILL,
			}}
		err = command.Run(func() (err error) {
			r.since = time.Now()
			r.child, err = l.children.Start(command.Path, command.Argv, attr, cores)
			return err
		})
	}
	if err != nil {
		r.disconnect()
		return nil, err
	}
	return r, nil
}

// firstLockFD is the descriptor number of a task's first GPU lock. Shells use
// the numbers up to 10, and bash also uses 255, so these numbers would be
// unsafe.
const firstLockFD = 100

// withLocks appends the host's GPU locks to the descriptors that a task
// inherits. The GPUs then stay locked as long as any process of the job lives.
func (l launch) withLocks(files ...uintptr) []uintptr {
	if len(l.locks) == 0 {
		return files
	}
	for len(files) < firstLockFD {
		files = append(files, ^uintptr(0)) // this invalid number leaves the descriptor closed in the task
	}
	for _, f := range l.locks {
		files = append(files, f.Fd())
	}
	return files
}

// startGC starts the process "agent gc". Its standard error goes to the
// agent's log.
func (h *host) startGC() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("start agent gc: %w", err)
	}
	defer null.Close() // the child process has its own copy
	attr := &syscall.ProcAttr{Dir: "/", Env: os.Environ(), Files: []uintptr{null.Fd(), null.Fd(), os.Stderr.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	if _, err = h.children.Start("/proc/self/exe", []string{"plx", "agent", "gc"}, attr, nil); err != nil {
		return fmt.Errorf("start agent gc: %w", err)
	}
	return nil
}

// directory returns the task's working directory. With --workdir, this is the
// directory that all tasks share; with --chdir, the folder that the user
// named; else the task's own folder, own.
func (l launch) directory(own string) (string, error) {
	if l.spec.Workdir != "" {
		return l.folder.Work(), nil
	}
	return program.WorkingFolder(string(l.spec.Command.Chdir), own)
}

// command returns the program that the task executes, and the environment and
// working directory for it. If --setup has already run for the whole host,
// command applies the changes of that run to the environment instead of
// running --setup again.
func (l launch) command(env []string, dir string) (c program.Command, _ []string, _ string, err error) {
	want := l.spec.Command
	if !want.SetupDone {
		return program.ResolveAfterSetup(jobfolder.Setup{}, want, env, dir)
	}
	changed, done, err := l.folder.ReadSetup()
	if err == nil && !done {
		err = errors.New("--setup was not run on this host")
	}
	if err != nil {
		return c, nil, "", err
	}
	want.Setup = ""
	return program.ResolveAfterSetup(changed, want, env, dir)
}

// share returns the CPU cores of a worker. It returns nil for a parameter
// server, which may use all cores.
func (l launch) share() []int {
	if l.task.Task.Role != cluster.Worker {
		return nil
	}
	return process.ShareOfCores(l.cores, l.task.LocalRank, protocol.Workers(l.layout.Tasks))
}

// contract returns what the task learns about itself and the job through its
// environment. dir is the task's own folder.
func (l launch) contract(dir string, cores int) cluster.Contract {
	c := cluster.Contract{
		Job: l.spec.Job, Generation: l.start.Generation, Task: l.task.Task,
		WorldSize: len(l.start.Addresses.Cluster().Worker), LocalRank: l.task.LocalRank, LocalWorldSize: protocol.Workers(l.layout.Tasks),
		FirstWorldSize: l.spec.WorldSize,
		Cluster:        l.start.Addresses.Cluster(), ListenFD: program.ListenFD, ControlFD: program.ControlFD,
		SecretFile: l.folder.Secret(), TLS: l.spec.TLS, LogLevel: l.spec.LogLevel, Dir: dir,
		Foreign: cluster.Foreign{
			Cluster: l.start.Addresses.Foreign(), GroupRank: l.layout.GroupRank,
			Visible: l.task.Variables(), Threads: cores,
			Groups: l.start.Groups, Restarts: l.start.Restarts, MaxRestarts: l.start.MaxRestarts,
			ErrorFile: l.folder.ErrorFile(l.task.Task, l.task.generation),
		},
	}
	c.Foreign.Interface = cmp.Or(l.spec.Interface, sockets.Interface(l.spec.DataAddr))
	c.Foreign.Prefix = sockets.IsPrefix(c.Foreign.Interface)
	c.Checkpoints, _ = jobfolder.Checkpoints(l.spec.Checkpoints) // "agent start" has already validated the name
	if host, port, err := net.SplitHostPort(c.Foreign.Cluster.Addr(cluster.Chief)); err == nil {
		c.Foreign.MasterAddr = host
		c.Foreign.MasterPort, _ = strconv.Atoi(port) // the port is valid, because an agent has sent it
	}
	return c
}

// running is the started process of a task, with the supervisor's ends of its
// output pipes and control channel.
type running struct {
	child   *process.Child
	since   time.Time                   // start time of the process
	control *cluster.Control            // the supervisor's end of the control channel
	outs    [2]*output                  // stdout, then stderr
	queue   chan cluster.ControlMessage // messages to send to the task on control, in order
}

// maxQueued is the maximum number of unsent messages for a task that does not
// read its control channel.
const maxQueued = 16

// connect creates the output pipes and the control channel of a task. It
// returns the files that the process inherits, in the order of their
// descriptors. The caller must close them, even after an error. limit is the
// maximum size of the task's log files (spools), as in protocol.Spec. If
// output is lost later, notify is called with a message for the user.
func (r *running) connect(t *task, logFolder string, limit int64, notify func(string)) (theirs []*os.File, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, null)
	for i, stream := range []logs.Stream{logs.Stdout, logs.Stderr} {
		source := logs.Source{Task: t.Task.String(), Stream: stream}
		to, err := logs.Create(logFolder, source, limit)
		if err != nil {
			return theirs, err
		}
		if stream == logs.Stderr && t.generation > 0 {
			// A marker line separates generations in the log. If the disk is
			// full, the task's own output reports that.
			_, _ = fmt.Fprintf(to, "%sgeneration %d\n", cluster.VerboseMark, t.generation)
		}
		var end *os.File
		if r.outs[i], end, err = newOutput(source.String(), to, notify, func(p []byte) { t.reported.output(i, p) }); err != nil {
			to.Close() // the new log file is still empty
			return theirs, err
		}
		theirs = append(theirs, end)
	}
	control, end, err := cluster.ControlPair()
	if err != nil {
		return theirs, err
	}
	r.control = control
	return append(theirs, end), nil
}

// send queues a message to the task. It returns false if the queue is full
// because the task does not read its messages.
func (r *running) send(m cluster.ControlMessage) bool {
	select {
	case r.queue <- m:
		return true
	default:
		return false
	}
}

// write sends the queued messages until the process has ended. It passes each
// message that could not be sent to failed.
func (r *running) write(failed func(cluster.ControlMessage, error)) {
	for {
		select {
		case m := <-r.queue:
			if err := r.control.Send(m); err != nil {
				failed(m, err)
			}
		case <-r.child.Done():
			return
		}
	}
}

// disconnect closes the pipes and the control channel of a process that did
// not start.
func (r *running) disconnect() {
	for _, o := range r.outs {
		if o != nil {
			o.pipe.Close() // no process has written to the pipe
			o.to.Close()   // the log file has got no output
		}
	}
	if r.control != nil {
		r.control.Close() // no message was sent on the channel
	}
}
