//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

// execute is "plx agent exec", a child of the agent process that answers a
// DoExec call. It runs one command that is no task of a job. From standard
// input it reads an ExecRequest, one line of JSON, and then orders of one byte
// each. It ends the command in three cases: its input ends, no order arrives
// for the duration of the lease, or its parent ends. Its exit status is that
// of the command.
func execute(_ context.Context, _ []string, std streams) error {
	terms, guardGone := watchdog.Signals(), make(chan os.Signal, 1)
	signal.Notify(guardGone, guardEnded)
	var want protocol.ExecRequest
	lines := json.NewDecoder(io.LimitReader(std.in, protocol.MaxMessage))
	if err := lines.Decode(&want); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	e := &execution{want: want, orders: make(chan byte), guardGone: guardGone, stderr: std.err}
	done, err := e.findJob()
	if done || err != nil {
		return err
	}
	defer e.states.Close()
	if e.children, err = process.NewChildren(); err != nil {
		return err
	}
	if e.child, err = e.start(); err != nil {
		return coded{program.ExitCode(err), err}
	}
	go e.read(io.MultiReader(lines.Buffered(), std.in))
	e.watch(terms)
	err = e.end()
	if err == exited(0) && want.Setup {
		err = e.note()
	}
	return err
}

// execution is the state of a command that execute runs.
type execution struct {
	want      protocol.ExecRequest
	orders    chan byte        // orders from standard input, one byte each, such as a signal for the command; ExecStop at the end of the input
	guardGone <-chan os.Signal // receives a signal when the parent, which runs guard, has ended
	children  *process.Children
	child     *process.Child
	askedAt   time.Time // when SIGTERM was sent to the command; the zero time means never
	ended     error     // why this process ended the command, such as an expired lease; nil if it did not
	stderr    io.Writer // standard error of this process, which the command inherits

	folder jobfolder.Folder // folder of the job for which the command runs; "" for a command without a job
	after  jobfolder.Setup  // changes of the environment that the job's --setup command has made; this command starts with them
	states program.States   // if the command is a --setup command: its environment before and after
}

// findJob sets the fields that depend on the command's job. done means that
// the command is a --setup command that has already run on this host, so it
// need not run again.
func (e *execution) findJob() (done bool, err error) {
	if e.want.Job == "" {
		return false, nil
	}
	if e.folder, err = jobfolder.Of(e.want.Job, e.want.Folder); err != nil {
		return false, err
	}
	e.after, done, err = e.folder.ReadSetup()
	if err != nil || !e.want.Setup || done {
		return done && e.want.Setup, err
	}
	e.states, err = program.NewStates(string(e.folder))
	return false, err
}

// note compares the environment before and after the --setup command, and
// stores the changes in the job's folder.
func (e *execution) note() error {
	changed, ours, err := e.states.Compare()
	if err != nil {
		return err
	}
	for _, name := range ours {
		fmt.Fprintf(e.stderr, "plx: --setup: it sets %s, which plx sets for each task: plx's value is used\n", name) // a failed write loses only a warning
	}
	return e.folder.WriteSetup(changed)
}

// directory returns the working directory of the command.
func (e *execution) directory() (string, error) {
	if e.folder != "" {
		return e.folder.Work(), nil
	}
	home, err := jobfolder.Home()
	if err != nil {
		return "", err
	}
	return program.WorkingFolder(string(e.want.Command.Chdir), home)
}

// start starts the command in a new session. The command inherits standard
// output and error; its standard input is /dev/null.
func (e *execution) start() (*process.Child, error) {
	dir, err := e.directory()
	if err != nil {
		return nil, err
	}
	login, err := program.Activate(os.Environ(), e.want.Command.Venv)
	if err != nil {
		return nil, err
	}
	env := program.CommandEnvironment(login, e.want.Env, string(e.want.Command.Path), dir)
	command, env, dir, err := e.command(env, dir)
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close() // the command has its own copy of the descriptor
	files := []uintptr{null.Fd(), 1, 2}
	if e.want.Setup {
		files = append(files, e.states[0].Fd(), e.states[1].Fd())
	}
	attr := &syscall.ProcAttr{Dir: dir, Env: env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	var child *process.Child
	return child, command.Run(func() (err error) {
		child, err = e.children.Start(command.Path, command.Argv, attr, nil)
		return err
	})
}

// command returns the program to execute, and the environment and the working
// directory for it.
func (e *execution) command(env []string, dir string) (c program.Command, _ []string, _ string, err error) {
	if e.want.Setup {
		return program.Setup(string(e.want.Command.Setup), env, dir), env, dir, nil
	}
	return program.ResolveAfterSetup(e.after, e.want.Command, env, dir)
}

// read sends each byte of the input to e.orders, and ExecStop at the end of
// the input. Its goroutine ends only with the process.
func (e *execution) read(in io.Reader) {
	buf := make([]byte, 256)
	for {
		n, err := in.Read(buf)
		for _, order := range buf[:n] {
			e.orders <- order
		}
		if err != nil {
			e.orders <- protocol.ExecStop
			return
		}
	}
}

// settling is how long to wait, after the command has ended by itself, for its
// background processes to end too.
const settling = 300 * time.Millisecond

// watch returns when the command has ended by itself, or when it must be
// killed. If watch has asked the command to end, it waits until all
// descendants of the command have ended, or until the grace period is over.
func (e *execution) watch(terms <-chan os.Signal) {
	lease := time.NewTimer(e.want.Lease)
	defer lease.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var limit <-chan time.Time
	if e.want.MaxTime > 0 {
		limit = time.After(e.want.MaxTime)
	}
	for {
		select {
		case order := <-e.orders:
			switch order {
			case protocol.ExecKill:
				return
			case protocol.ExecStop:
				e.askToEnd()
			default:
				lease.Reset(e.want.Lease)
			}
		case <-terms:
			e.askToEnd()
		case <-e.guardGone:
			return
		case <-lease.C:
			e.giveUp(exit.CodePlx, "plx was not heard for %s", e.want.Lease)
		case <-limit:
			e.giveUp(protocol.ExecTimedOut, "it ran longer than %s", e.want.MaxTime)
		case <-tick.C:
			if !e.askedAt.IsZero() && (time.Since(e.askedAt) > e.want.Grace || e.child.Over() && e.children.Left(0) == 0) {
				return
			}
		case <-e.over():
			return
		}
	}
}

// over returns a channel that is closed when the command ends. After SIGTERM
// was sent to the command, over returns nil, because watch then waits for all
// descendants of the command.
func (e *execution) over() <-chan struct{} {
	if e.askedAt.IsZero() {
		return e.child.Done()
	}
	return nil
}

// askToEnd asks the command to end by SIGTERM. Further calls do nothing.
func (e *execution) askToEnd() {
	if e.askedAt.IsZero() {
		e.askedAt = time.Now()
		e.child.SignalGroup(unix.SIGTERM, unix.SIGCONT)
	}
}

// giveUp asks the command to end and records the reason, which replaces the
// command's exit status. It does nothing if the command was asked to end
// before.
func (e *execution) giveUp(code int, why string, limit time.Duration) {
	if e.askedAt.IsZero() {
		e.ended = coded{code, fmt.Errorf("the command was ended: "+why, limit)}
	}
	e.askToEnd()
}

// end kills all processes that the command has left, and returns the command's
// result as an error.
func (e *execution) end() error {
	if e.askedAt.IsZero() { // the command ended by itself
		if n := e.children.Left(settling); n > 0 {
			fmt.Fprintf(e.stderr, "plx agent: the command left processes in the background, which end with it: %d\n", n) // a failed write loses only a warning
		}
	}
	if err := clearAll(e.children); err != nil {
		return err
	}
	if e.ended != nil {
		return e.ended
	}
	status := e.child.Status()
	if status.Signaled() {
		return exited(128 + int(status.Signal()))
	}
	return exited(status.ExitStatus())
}

// exited is an error that carries the exit status of a command. No message is
// printed for it.
type exited int

func (e exited) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// becomeName is the name of the subcommand "become".
const becomeName = "become"

// become is "agent become", which replaces this process by a task's program:
// see program.Become. Errors go to the task's standard error.
func become(_ context.Context, args []string, _ streams) error {
	err := program.Become(args)
	return coded{program.ExitCode(err), err}
}
