//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

// guardEnded is the signal that the kernel sends to "agent exec" when its
// parent, the guard process, ends.
const guardEnded = unix.SIGUSR2

// guard runs a command through a child process, "agent exec". After this child
// has ended, guard kills all remaining descendants of the child. If either
// guard's process or the child is killed, the other still kills the command.
// While guard runs, this process must have no other children.
func guard(_ context.Context, want protocol.ExecRequest, call *protocol.Answering) (done protocol.Executed, err error) {
	request, err := json.Marshal(want)
	if err != nil {
		return done, err
	}
	terms := make(chan os.Signal, 4)
	signal.Notify(terms, unix.SIGTERM, unix.SIGUSR1)
	defer signal.Stop(terms)
	children, err := process.NewChildren()
	if err != nil {
		return done, err
	}
	g, err := startGuarded(children, want.Mark)
	if err != nil {
		children.Close()
		return done, fmt.Errorf("start the process that runs the command: %w", err)
	}
	go g.feed(append(request, '\n'), call)
	var printing sync.WaitGroup
	for i, from := range g.out {
		printing.Go(func() { forward(call, 1+i, from) })
	}
	for over := false; !over; {
		select {
		case <-g.child.Done():
			over = true
		case sig := <-terms:
			g.child.Signal(sig.(unix.Signal))
		}
	}
	if err := clearAll(children); err != nil {
		os.Exit(fail(os.Stderr, err)) // end this process, because a later call would treat the surviving processes as its own children
	}
	children.Close()
	printing.Wait() // clearAll has killed all writers of the two pipes, so both readers end
	if g.child.Status().Signaled() {
		return done, &protocol.Failure{Code: protocol.CodeKilled, Text: "its agent on the host was killed"}
	}
	return protocol.Executed{Status: g.child.Status().ExitStatus()}, nil
}

// guarded is a running child process "agent exec", with this process's ends of
// the pipes to it.
type guarded struct {
	child *process.Child
	in    *os.File    // standard input of the child: the request, then the launcher's orders
	out   [2]*os.File // the command's standard output and standard error
}

func startGuarded(children *process.Children, mark protocol.HostJob) (g *guarded, err error) {
	g = &guarded{}
	var theirs [3]*os.File
	if theirs[0], g.in, err = os.Pipe(); err != nil {
		return nil, err
	}
	for i := range g.out {
		if g.out[i], theirs[1+i], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	attr := &syscall.ProcAttr{Env: program.AgentEnvironment(os.Environ(), mark.Job, mark.Folder), Sys: &syscall.SysProcAttr{Pdeathsig: guardEnded}}
	for _, f := range theirs {
		attr.Files = append(attr.Files, f.Fd())
		defer f.Close() // the child has its own copy of the descriptor
	}
	g.child, err = children.Start("/proc/self/exe", []string{"plx", "agent", "exec"}, attr, nil)
	return g, err
}

// feed writes the request and then the launcher's orders to the process "agent
// exec", until the launcher ends the call.
func (g *guarded) feed(request []byte, orders io.Reader) {
	defer g.in.Close() // closing its input makes the child end the command
	if _, err := g.in.Write(request); err == nil {
		_, _ = io.Copy(g.in, orders) // the copy fails once the child has ended
	}
}

// forward sends what the command prints to the launcher. If the launcher has
// disconnected, forward closes the pipe, so that the command gets SIGPIPE.
func forward(call *protocol.Answering, stream int, from *os.File) {
	defer from.Close() // the pipe was only read
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && call.Send(stream, buf[:n]) != nil || err != nil {
			return
		}
	}
}

// clearAll kills all descendants of this process. It fails if a descendant
// survives.
func clearAll(children *process.Children) error {
	left, err := children.Clear(process.KillTime)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("processes %v did not end when killed", left)
	}
	if err != nil {
		return coded{exit.CodePlx, err}
	}
	return nil
}
