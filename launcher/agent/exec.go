//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/protocol"
)

// execute is "agent exec": it runs one command, which is no task of a job. It ends the
// command when its standard input ends or is silent for the lease. When it returns, no
// process is left of the command and of what that has started.
func execute(_ context.Context, args []string, std streams) error {
	if len(args) != 0 {
		return usage("exec takes no arguments")
	}
	terms := watchdog.Signals()
	var want protocol.ExecRequest
	lines := json.NewDecoder(io.LimitReader(std.in, protocol.MaxMessage))
	if err := lines.Decode(&want); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	e := &execution{want: want, orders: make(chan byte), stderr: std.err}
	var err error
	if e.children, err = process.NewChildren(); err != nil {
		return err
	}
	if e.child, err = e.start(); err != nil {
		return coded{program.ExitCode(err), err}
	}
	go e.read(io.MultiReader(lines.Buffered(), std.in))
	e.watch(terms)
	return e.end()
}

// execution is a command that runs.
type execution struct {
	want     protocol.ExecRequest
	orders   chan byte // orders of the launcher; ExecStop at the end of the input
	children *process.Children
	child    *process.Child
	told     time.Time // when the command was told to end; zero: it was not
	ended    error     // why the agent ended the command by itself; nil: it did not
	stderr   io.Writer // of the agent and of the command
}

// start starts the command in a session of its own, with the streams of this process.
func (e *execution) start() (*process.Child, error) {
	home, err := jobfolder.Home()
	if err != nil {
		return nil, err
	}
	dir, err := program.WorkingFolder(string(e.want.Command.Chdir), home)
	if err != nil {
		return nil, err
	}
	login, err := program.Activate(os.Environ(), e.want.Command.Venv)
	if err != nil {
		return nil, err
	}
	env := program.Plain(login, e.want.Env, string(e.want.Command.Path), dir)
	command, err := program.Resolve(e.want.Command, env, dir)
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close() // the command has its own
	attr := &syscall.ProcAttr{Dir: dir, Env: env, Files: []uintptr{null.Fd(), 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	var child *process.Child
	return child, command.Run(func() (err error) {
		child, err = e.children.Start(command.Path, command.Argv, attr, nil)
		return err
	})
}

// read passes orders on, until the input ends. It ends with the process.
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

// settling is how long watch waits for processes that end together with the command.
const settling = 300 * time.Millisecond

// watch returns after the command has ended, or when it is to be killed. If the command
// was told to end, watch also waits for what it has started.
func (e *execution) watch(terms <-chan os.Signal) {
	lease := time.NewTimer(e.want.Lease)
	defer lease.Stop()
	limit, tick := newLimit(e.want.MaxTime), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case order := <-e.orders:
			switch order {
			case protocol.ExecKill:
				return
			case protocol.ExecStop:
				e.tell()
			default:
				lease.Reset(e.want.Lease)
			}
		case <-terms:
			e.tell()
		case <-lease.C:
			e.giveUp(program.CodePlx, "plx was not heard for %s", e.want.Lease)
		case <-limit:
			e.giveUp(protocol.ExecTimedOut, "it ran longer than %s", e.want.MaxTime)
		case <-tick.C:
			if !e.told.IsZero() && (time.Since(e.told) > e.want.Grace || e.child.Over() && e.children.Left(0) == 0) {
				return
			}
		case <-e.over():
			return
		}
	}
}

// newLimit returns a channel that receives after the time; never if that is 0.
func newLimit(limit time.Duration) <-chan time.Time {
	if limit <= 0 {
		return nil
	}
	return time.After(limit)
}

// over is closed when a command has ended that was not told to.
func (e *execution) over() <-chan struct{} {
	if e.told.IsZero() {
		return e.child.Done()
	}
	return nil
}

// tell asks the command to end, once.
func (e *execution) tell() {
	if e.told.IsZero() {
		e.told = time.Now()
		e.child.SignalGroup(unix.SIGTERM, unix.SIGCONT)
	}
}

// giveUp asks the command to end, and notes why. It does nothing after tell.
func (e *execution) giveUp(code int, why string, limit time.Duration) {
	if e.told.IsZero() {
		e.ended = coded{code, fmt.Errorf("the command was ended: "+why, limit)}
	}
	e.tell()
}

// end kills what is left, and returns how the command ended.
func (e *execution) end() error {
	if e.told.IsZero() { // the command ended by itself
		if n := e.children.Left(settling); n > 0 {
			fmt.Fprintf(e.stderr, "plx agent: the command left processes in the background, which end with it: %d\n", n) // a note may be lost
		}
	}
	left, err := e.children.Clear(process.KillTime)
	if err != nil {
		return coded{program.CodePlx, err}
	}
	if len(left) > 0 {
		return coded{program.CodePlx, fmt.Errorf("processes %v did not end when killed", left)}
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

// exited is the exit status of a command, which fail prints nothing about.
type exited int

func (e exited) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
