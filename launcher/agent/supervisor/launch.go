//go:build linux

package supervisor

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
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

// launch starts the process of one task.
type launch struct {
	*host
	task   *task
	layout protocol.Prepare // what this host was asked to prepare: its tasks
	start  protocol.Start   // addresses of all tasks of the job
	tell   func(string)     // takes a line for the user if output is lost
}

// run starts the process.
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
	if len(l.spec.Outputs) > 0 {
		if err := l.folder.NotePlace(dir); err != nil {
			return nil, err
		}
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
	r := &running{queue: make(chan cluster.ControlMessage, maxQueued)}
	ours, err := r.connect(l.task, l.folder.Logs(), l.tell)
	defer func() {
		for _, f := range ours {
			f.Close() // the task has its own
		}
		l.task.open.CloseSocket()
	}()
	if err == nil {
		if !l.spec.Bind {
			cores = nil
		}
		attr := &syscall.ProcAttr{Dir: dir, Env: env,
			Files: []uintptr{ours[0].Fd(), ours[1].Fd(), ours[2].Fd(), uintptr(l.task.open.FD), ours[3].Fd()}, // see program.ListenFD
			Sys: &syscall.SysProcAttr{
				Setsid: true,
				// The watchdog kills the task if this process is killed. This
				// kills it if both are.
				Pdeathsig: syscall.SIGKILL,
			}}
		err = command.Run(func() error { return r.start(l.children, command, attr, cores) })
	}
	if err != nil {
		r.disconnect()
		return nil, err
	}
	return r, nil
}

// directory returns the folder that the task runs in. own is the task's own.
func (l launch) directory(own string) (string, error) {
	if l.spec.Workdir != "" {
		return l.folder.Work(), nil
	}
	return program.WorkingFolder(string(l.spec.Command.Chdir), own)
}

// command returns what the task executes, with its environment and its folder. If --setup
// was run for the whole host, what it has changed counts.
func (l launch) command(env []string, dir string) (c program.Command, _ []string, _ string, err error) {
	want, changed := l.spec.Command, jobfolder.Setup{}
	if want.SetupDone {
		var done bool
		if changed, done, err = l.folder.ReadSetup(); err == nil && !done {
			err = errors.New("--setup was not run on this host")
		}
		if err != nil {
			return c, nil, "", err
		}
		want.Setup = ""
		env, dir = program.AfterSetup(changed, env, dir)
	}
	if c, err = program.Resolve(want, env, dir); err == nil {
		c, err = c.Limited(changed)
	}
	return c, env, dir, err
}

// share returns the cores of a worker. Servers may use all.
func (l launch) share() []int {
	if l.task.Task.Role != cluster.Worker {
		return nil
	}
	return process.ShareOfCores(l.cores, l.task.LocalRank, protocol.Workers(l.layout.Tasks))
}

// contract is what the task is told about itself and the job. dir is its own
// folder.
func (l launch) contract(dir string, cores int) cluster.Contract {
	c := cluster.Contract{
		Job: l.spec.Job, Generation: l.start.Generation, Task: l.task.Task,
		WorldSize: len(l.start.Cluster.Worker), LocalRank: l.task.LocalRank, LocalWorldSize: protocol.Workers(l.layout.Tasks),
		FirstWorldSize: l.spec.WorldSize,
		Cluster:        l.start.Cluster, ListenFD: program.ListenFD, ControlFD: program.ControlFD,
		SecretFile: l.folder.Secret(), LogLevel: l.spec.LogLevel, Dir: dir,
		Foreign: cluster.Foreign{
			Cluster: l.start.Foreign, GroupRank: l.layout.GroupRank,
			Devices: l.task.Devices, Threads: cores,
			Groups: l.start.Groups, Restarts: l.start.Restarts, MaxRestarts: l.start.MaxRestarts,
			ErrorFile: l.folder.ErrorFile(l.task.Task, l.task.generation),
		},
	}
	c.Foreign.Interface = cmp.Or(l.spec.Interface, sockets.Interface(l.spec.DataAddr))
	c.Foreign.Prefix = sockets.IsPrefix(c.Foreign.Interface)
	c.Checkpoints, _ = jobfolder.Checkpoints(l.spec.Checkpoints) // "agent start" has checked it
	if host, port, err := net.SplitHostPort(l.start.Foreign.Addr(cluster.Chief)); err == nil {
		c.Foreign.MasterAddr = host
		c.Foreign.MasterPort, _ = strconv.Atoi(port) // an agent wrote it
	}
	return c
}

// running is the process of a task, with the supervisor's ends of its streams and
// of its control channel.
type running struct {
	child   *process.Child
	control *cluster.Control            // the supervisor's end of the control channel
	outs    [2]*output                  // stdout, then stderr
	queue   chan cluster.ControlMessage // messages for the task, to be sent on control in order
}

// maxQueued bounds the messages that wait for a process that does not listen.
const maxQueued = 16

// connect opens the streams and the control channel of a task's process. It returns
// the files that the process inherits for them, in order, which the caller closes also
// on an error. tell is called with a line for the user if output is lost.
func (r *running) connect(t *task, logFolder string, tell func(string)) (theirs []*os.File, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, null)
	for i, stream := range []logs.Stream{logs.Stdout, logs.Stderr} {
		source := logs.Source{Task: t.Task.String(), Stream: stream}
		to, err := logs.Create(logFolder, source)
		if err != nil {
			return theirs, err
		}
		if stream == logs.Stderr && t.generation > 0 {
			// A line separates generations. The task's own output reports a full disk.
			_, _ = fmt.Fprintf(to, "plx: generation %d\n", t.generation)
		}
		var end *os.File
		if r.outs[i], end, err = newOutput(source.String(), to, tell); err != nil {
			to.Close() // nothing was written to it
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

// start starts the process.
func (r *running) start(children *process.Children, c program.Command, attr *syscall.ProcAttr, cores []int) (err error) {
	r.child, err = children.Start(c.Path, c.Argv, attr, cores)
	return err
}

// send queues a message to the process. It reports false if the process does not
// listen; signals deal with that.
func (r *running) send(m cluster.ControlMessage) bool {
	select {
	case r.queue <- m:
		return true
	default:
		return false
	}
}

// write sends queued messages until the process has ended. failed takes those that
// could not be sent.
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

// disconnect closes the streams and the channel of a process that did not start.
func (r *running) disconnect() {
	for _, o := range r.outs {
		if o != nil {
			o.pipe.Close() // nobody has written to it
			o.to.Close()   // nothing was written to it
		}
	}
	if r.control != nil {
		r.control.Close() // nobody has written to it either
	}
}

// tailSize is how many of the last bytes of stderr an Exit carries.
const tailSize = 4 << 10

// output carries one stream of a task from a pipe into its spool. On a full disk it
// drops bytes, so that the task does not wait.
type output struct {
	name string         // task and stream, such as "worker:3 stderr"
	pipe *os.File       // read end; the task has the other end
	to   io.WriteCloser // the spool: the stream's log file on the host
	tell func(string)   // takes a line for the user
	done chan struct{}  // closed when the stream has ended, or close was called

	// Until done is closed, only run uses these.
	dropped int64 // bytes that the spool did not take, in all
	gap     int64 // bytes dropped since the last one that the spool took; 0: the spool has no gap at its end

	mu   sync.Mutex
	tail []byte // the last bytes of the stream, at most tailSize
}

// newOutput returns an output and the end of its pipe that the task inherits, which
// the caller closes. A goroutine of the output calls tell.
func newOutput(name string, to io.WriteCloser, tell func(string)) (*output, *os.File, error) {
	pipe, end, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("pipe for %s: %w", name, err)
	}
	return &output{name: name, to: to, pipe: pipe, tell: tell, done: make(chan struct{})}, end, nil
}

// run reads until every writer has closed its end, or close is called.
func (o *output) run() {
	defer close(o.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := o.pipe.Read(buf)
		o.keep(buf[:n])
		if err != nil {
			return // the end, or closed
		}
	}
}

// keep writes p to the spool and remembers the last bytes. Only run calls it.
func (o *output) keep(p []byte) {
	o.remember(p)
	if o.gap > 0 && len(p) > 0 {
		mark := fmt.Sprintf("\nplx: %d bytes are missing here: the disk was full\n", o.gap)
		if _, err := io.WriteString(o.to, mark); err != nil {
			o.drop(len(p), err)
			return
		}
		o.gap = 0
	}
	if n, err := o.to.Write(p); err != nil {
		o.drop(len(p)-n, err)
	}
}

func (o *output) remember(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = append(o.tail, p...)
	if extra := len(o.tail) - tailSize; extra > 0 {
		o.tail = append(o.tail[:0], o.tail[extra:]...)
	}
}

// drop counts bytes that the spool did not take. It tells the user once.
func (o *output) drop(n int, err error) {
	if o.dropped == 0 {
		o.tell(fmt.Sprintf("output is being lost: %v", err))
	}
	o.dropped += int64(n)
	o.gap += int64(n)
}

// lastLines returns the last bytes of the stream. They begin at the start of a line,
// unless one line is longer than tailSize.
func (o *output) lastLines() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	tail := o.tail
	if len(tail) == tailSize {
		if i := bytes.IndexByte(tail[:len(tail)-1], '\n'); i >= 0 {
			tail = tail[i+1:]
		}
	}
	return string(tail)
}

// close ends the reading, after all was read or at the deadline, and closes the
// spool. It tells the user how much was lost.
func (o *output) close(deadline time.Time) error {
	within(time.Until(deadline), o.done)
	// A read that is going on returns: the pipe is in the poller.
	err := o.pipe.Close()
	if !within(closing, o.done) {
		return errors.Join(err, errors.New("the disk took no more output in time"))
	}
	if o.dropped > 0 {
		o.tell(fmt.Sprintf("%s: %d bytes of output were lost", o.name, o.dropped))
	}
	return errors.Join(err, o.to.Close())
}

// closing bounds the wait for a spool's last write.
const closing = 3 * time.Second
