//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/trainer/cluster"
	"golang.org/x/sys/unix"
)

// running is the process of a task, with the supervisor's ends of its streams and
// of its control channel.
type running struct {
	child   *process.Child
	control *cluster.Control
	outs    [2]*output    // stdout, stderr
	queue   chan outgoing // to be sent on control, in order
}

// outgoing is a message to a process.
type outgoing struct {
	cluster.ControlMessage
	failed func(error) // called if the message could not be sent; nil: nobody is
}

// maxQueued bounds the messages that wait for a process that does not listen.
const maxQueued = 16

// connect opens the streams and the control channel of a task's process. It returns
// the descriptors that the process inherits for them, in order, which the caller
// closes also on an error. tell is called with a line for the user if output is
// lost.
func (r *running) connect(t *task, logFolder string, tell func(string)) (fds []uintptr, err error) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	fds = append(fds, uintptr(null))
	for i, stream := range []logs.Stream{logs.Stdout, logs.Stderr} {
		source := logs.Source{Task: t.Task.String(), Stream: stream}
		to, err := spool(logFolder, source, t.generation)
		if err != nil {
			return fds, err
		}
		var fd int
		if r.outs[i], fd, err = newOutput(source.String(), to, tell); err != nil {
			to.Close() // nothing was written to it
			return fds, err
		}
		fds = append(fds, uintptr(fd))
	}
	control, theirs, err := cluster.ControlPair()
	if err != nil {
		return fds, err
	}
	r.control = control
	defer theirs.Close() // the task gets a copy
	fd, err := unix.FcntlInt(theirs.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fds, fmt.Errorf("control channel: %w", err)
	}
	return append(fds, uintptr(fd)), nil
}

// spool opens the log of one stream of a task.
func spool(folder string, source logs.Source, generation int) (*logs.Writer, error) {
	w, err := logs.Create(folder, source)
	if err == nil && source.Stream == logs.Stderr && generation > 0 {
		// A line separates generations. The task's own output reports a full disk.
		_, _ = fmt.Fprintf(w, "plx: generation %d\n", generation)
	}
	return w, err
}

// start starts the process.
func (r *running) start(children *process.Children, c program.Command, attr *syscall.ProcAttr, cores []int) (err error) {
	r.child, err = children.Start(c.Path, c.Argv, attr, cores)
	return err
}

// send queues a message to the process. failed, if not nil, is called if it could not
// be sent. Signals deal with a process that does not listen.
func (r *running) send(m cluster.ControlMessage, failed func(error)) {
	select {
	case r.queue <- outgoing{m, failed}:
	default:
		outgoing{m, failed}.over(errors.New("it does not listen"))
	}
}

// write sends queued messages until the process has ended.
func (r *running) write() {
	for {
		select {
		case m := <-r.queue:
			m.over(r.control.Send(m.ControlMessage))
		case <-r.child.Done():
			for len(r.queue) > 0 {
				(<-r.queue).over(errors.New("it has ended"))
			}
			return
		}
	}
}

// over reports the outcome of sending m.
func (m outgoing) over(err error) {
	if err != nil && m.failed != nil {
		m.failed(err)
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
