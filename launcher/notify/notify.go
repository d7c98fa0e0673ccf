// Package notify runs a command of the user's on this machine when a job hangs and when it
// ends.
//
//	n := notify.New("mail -s \"$PLX_VERDICT\" me@example.org </dev/null", printer)
//	n.Hang(event)     // while the job goes on: in the background
//	n.End(ctx, event) // at the end: until the command has ended
//
// The command learns of the job by variables of its environment. It can hold plx up for a while
// and no longer: with all that it has started it is ended after 30 s. Whatever it does changes
// neither the job nor plx's exit status.
package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/logs/style"
)

// Kind is what has happened to a job.
type Kind string

// The kinds of events.
const (
	Done    Kind = "done"    // all workers have exited with 0
	Failed  Kind = "failed"  // the job has failed, or plx has
	Stopped Kind = "stopped" // somebody has stopped the job
	Hung    Kind = "hang"    // nothing moves in the job, or it has ended because of that
)

// Event is what the command is told.
type Event struct {
	Kind    Kind
	Job     string // id of the job; empty: the launch failed before it had one
	Name    string // the user's name for the job; empty: none
	Verdict string // what has happened, as plx prints it
	Code    int    // plx's exit status, if the job has ended
	Ended   bool   // false: the job hangs and goes on
	Took    time.Duration
}

// Ended is the event of the end of a job.
func Ended(job, name string, begun time.Time, v protocol.Verdict) Event {
	e := Event{Kind: Failed, Job: job, Name: name, Verdict: v.Reason, Code: v.Code, Ended: true, Took: time.Since(begun)}
	if !v.Ended.IsZero() {
		e.Took = v.Ended.Sub(begun)
	}
	switch {
	case v.Hang != nil:
		e.Kind = Hung
	case v.Code == 0:
		e.Kind = Done
	case v.Stopped():
		e.Kind = Stopped
	}
	return e
}

// environment is that of the command: own, and what it is told, of which a variable without a value
// is not inherited either. None may have the name of a variable that sets a flag, as PLX_NAME
// does: the command may run plx.
func (e Event) environment(own []string) []string {
	status := ""
	if e.Ended {
		status = strconv.Itoa(e.Code)
	}
	told := [][2]string{
		{"PLX_EVENT", string(e.Kind)}, {"PLX_STATUS", status}, {"PLX_VERDICT", line(e.Verdict)},
		{"PLX_JOB", e.Job}, {"PLX_JOB_NAME", e.Name}, {"PLX_SECONDS", strconv.Itoa(max(0, int(e.Took.Seconds())))},
	}
	all := slices.DeleteFunc(slices.Clone(own), func(v string) bool {
		return slices.ContainsFunc(told, func(t [2]string) bool { return strings.HasPrefix(v, t[0]+"=") })
	})
	for _, t := range told {
		if t[1] != "" {
			all = append(all, t[0]+"="+t[1])
		}
	}
	return all
}

const (
	limit      = 30 * time.Second // for which the command may run
	mostLines  = 5                // of its output are printed
	mostOutput = 2 << 10          // of its output are kept, in bytes
	mostText   = 4 << 10          // bytes of a verdict: the system bounds a variable
)

// line makes one harmless line of a text: hosts and tasks have a part in it.
func line(text string) string {
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	text = logs.Escape(strings.Join(parts, "; "))
	return strings.ToValidUTF8(text[:min(len(text), mostText)], "")
}

// Notifier runs the command. One goroutine at a time may call its methods. A nil Notifier does
// nothing.
type Notifier struct {
	command string
	printer *console.Printer
	limit   time.Duration
	running chan struct{}           // closed when the command of the last Hang has ended; nil: there was none
	stop    context.CancelCauseFunc // ends it
}

// New returns a Notifier that runs a command by sh. Without a command it returns nil.
func New(command string, printer *console.Printer) *Notifier {
	if command == "" {
		return nil
	}
	return &Notifier{command: command, printer: printer, limit: limit}
}

// Hang tells that the job hangs and goes on. It does not wait for the command. While the one of
// the last Hang still runs, none is run.
func (n *Notifier) Hang(e Event) {
	if n == nil {
		return
	}
	if n.running != nil {
		select {
		case <-n.running:
		default:
			n.warn("its command still runs for the last hang, and is not run for this one")
			return
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	n.running, n.stop = done, cancel
	go func() {
		defer close(done)
		defer cancel(nil)
		n.run(ctx, e)
	}()
}

// End tells that the job has ended, after the command of Hang, and waits for the command. It ends
// both if ctx ends, and runs none if ctx has ended.
func (n *Notifier) End(ctx context.Context, e Event) {
	if n == nil || ctx.Err() != nil {
		return
	}
	defer n.printer.Watch(func() string { return "waiting for the command of --notify" })()
	if n.running != nil {
		defer context.AfterFunc(ctx, func() { n.stop(context.Cause(ctx)) })()
		<-n.running
	}
	if ctx.Err() == nil {
		n.run(ctx, e)
	}
}

// errLate ends a command that takes too long.
var errLate = errors.New("took too long")

// run runs the command, and prints what it says and how it failed.
func (n *Notifier) run(ctx context.Context, e Event) {
	ctx, cancel := context.WithTimeoutCause(ctx, n.limit, errLate)
	defer cancel()
	said, err := n.execute(ctx, e)
	for _, text := range said {
		n.printer.Printf("notify: %s", text)
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
	case cause == errLate:
		n.warn("its command was ended, with all that it had started: it had run for %s", n.limit)
	case cause != nil:
		n.warn("its command was ended: %v", cause)
	default:
		n.warn("its command failed: %v", err)
	}
}

// warn prints a warning. The command is not in it, which may be long.
func (n *Notifier) warn(format string, args ...any) {
	n.printer.Report(style.Doubtful, "warning: --notify: %s", fmt.Sprintf(format, args...))
}

// execute runs the command, and returns the first lines of its output. Then nothing of its group
// of processes is left.
func (n *Notifier) execute(ctx context.Context, e Event) (said []string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close() // only read
	cmd := exec.Command("sh", "-c", n.command)
	cmd.Env, cmd.Stdout, cmd.Stderr = e.environment(os.Environ()), w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for plx, and does not reach it
	err = cmd.Start()
	w.Close() // the command has its own
	if err != nil {
		return nil, err
	}
	read := make(chan []string)
	go func() { read <- firstLines(r) }()
	end := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // there may be none left
	unwatch := context.AfterFunc(ctx, end)
	err = cmd.Wait()
	unwatch()
	end()                                              // what it has left in the background
	_ = r.SetReadDeadline(time.Now().Add(time.Second)) // a process in a group of its own may keep the pipe
	return <-read, err
}

// firstLines reads all and returns the first lines.
func firstLines(r io.Reader) (lines []string) {
	var kept bytes.Buffer
	_, err := io.CopyN(&kept, r, mostOutput)
	more := int64(0)
	if err == nil {
		more, _ = io.Copy(io.Discard, r) // a command that could not write would hang
	}
	text := strings.TrimRight(kept.String(), "\r\n")
	if text == "" && more == 0 {
		return nil
	}
	lines = strings.Split(text, "\n")
	if more > 0 || len(lines) > mostLines {
		lines = append(lines[:min(len(lines), mostLines)], "... and more, which is left out")
	}
	return lines
}
