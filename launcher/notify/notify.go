// Package notify runs a command of the user on this machine when a job hangs
// and when it ends.
//
//	n := notify.New("mail -s \"$PLX_VERDICT\" me@example.org </dev/null", printer)
//	n.Hang(event)     // returns at once; the command runs in the background
//	n.End(ctx, event) // returns after the command has ended
//
// The command receives the event in environment variables. After 30 seconds it
// is killed together with all processes of its process group. Its exit status
// affects neither the job nor plx's own exit status.
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

// Kind says what has happened to a job.
type Kind string

// The kinds of events.
const (
	Done    Kind = "done"    // all workers exited with status 0
	Failed  Kind = "failed"  // the job failed, or plx failed
	Stopped Kind = "stopped" // a user stopped the job
	Hung    Kind = "hang"    // the job makes no progress, or was ended because it made none
)

// Event is what the command receives in its environment.
type Event struct {
	Kind    Kind
	Job     string // the job's id; empty if the launch failed before the job had one
	Name    string // the user's name for the job; empty if the user gave none
	Verdict string // what has happened, in the words that plx prints
	Code    int    // exit status of plx; valid if Ended is true
	Ended   bool   // false if the job hangs but has not ended
	Took    time.Duration
}

// Ended returns the event for the end of a job that began at begun.
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

// environment returns the variables for the command: own (the environment of
// plx) and the variables of the event. A variable of the event without a value
// is removed from own. The command may itself run plx, which takes the values
// of flags from variables such as PLX_NAME. So no variable of the event has
// such a name.
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
	limit      = 30 * time.Second // maximum run time of the command
	mostLines  = 5                // maximum number of output lines of the command that plx prints
	mostOutput = 2 << 10          // maximum number of output bytes of the command that plx keeps
	mostText   = 4 << 10          // maximum length of a verdict in bytes, because the kernel limits the size of an environment variable
)

// line returns text as one line without control characters. The text contains
// names that hosts and tasks have chosen, so it may have such characters.
func line(text string) string {
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	text = logs.Escape(strings.Join(parts, "; "))
	return strings.ToValidUTF8(text[:min(len(text), mostText)], "")
}

// Notifier runs the user's command. Only one goroutine at a time may call its
// methods. The methods of a nil Notifier do nothing.
type Notifier struct {
	command string
	printer *console.Printer
	limit   time.Duration
	running chan struct{}           // closed after the command of the last Hang has ended; nil if Hang was not called
	stop    context.CancelCauseFunc // kills the command of the last Hang
}

// New returns a Notifier that runs the command with sh. If command is empty,
// it returns nil.
func New(command string, printer *console.Printer) *Notifier {
	if command == "" {
		return nil
	}
	return &Notifier{command: command, printer: printer, limit: limit}
}

// Hang runs the command for a job that hangs but has not ended. It does not
// wait for the command. If the command of the previous Hang is still running,
// Hang only prints a warning.
func (n *Notifier) Hang(e Event) {
	if n == nil {
		return
	}
	if n.running != nil {
		select {
		case <-n.running:
		default:
			n.warn("the command of the last hang is still running, so it is not run again")
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

// End runs the command for a job that has ended, and waits for the command.
// Before that, it waits for the command of a previous Hang. When ctx ends, End
// kills both commands. If ctx has ended already, End does nothing.
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

// errLate is the cause with which a command is killed at its time limit.
var errLate = errors.New("took too long")

// run runs the command and prints its output and its error.
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
		n.warn("killed the command and its child processes after %s", n.limit)
	case cause != nil:
		n.warn("killed the command: %v", cause)
	default:
		n.warn("the command failed: %v", err)
	}
}

// warn prints a warning. The warning does not contain the command, which may
// be long.
func (n *Notifier) warn(format string, args ...any) {
	n.printer.Report(style.Doubtful, "warning: --notify: %s", fmt.Sprintf(format, args...))
}

// execute runs the command and returns the first lines of its output. When
// execute returns, all processes of the command's process group have ended.
func (n *Notifier) execute(ctx context.Context, e Event) (said []string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close() // the error is ignored because r is only read
	cmd := exec.Command("sh", "-c", n.command)
	cmd.Env, cmd.Stdout, cmd.Stderr = e.environment(os.Environ()), w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a process group of its own: Ctrl-C ends plx and not the command
	err = cmd.Start()
	w.Close() // the error is ignored: the command has its own copy of the file descriptor
	if err != nil {
		return nil, err
	}
	read := make(chan []string)
	go func() { read <- firstLines(r) }()
	end := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // the error is ignored: Kill fails if no process is left
	unwatch := context.AfterFunc(ctx, end)
	err = cmd.Wait()
	unwatch()
	end() // kill background processes of the command
	// A background process in another process group may hold the pipe open, so
	// stop reading after a second.
	_ = r.SetReadDeadline(time.Now().Add(time.Second))
	return <-read, err
}

// firstLines reads r to its end and returns the first lines.
func firstLines(r io.Reader) (lines []string) {
	var kept bytes.Buffer
	_, err := io.CopyN(&kept, r, mostOutput)
	more := int64(0)
	if err == nil {
		more, _ = io.Copy(io.Discard, r) // discard further output, because a command whose output nobody reads would block
	}
	text := strings.TrimRight(kept.String(), "\r\n")
	if text == "" && more == 0 {
		return nil
	}
	lines = strings.Split(text, "\n")
	if more > 0 || len(lines) > mostLines {
		lines = append(lines[:min(len(lines), mostLines)], "... (more output omitted)")
	}
	return lines
}
