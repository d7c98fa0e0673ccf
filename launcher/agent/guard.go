//go:build linux

package agent

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/exit"
)

const (
	guarded    = "guarded"    // argument of the process that runs the command
	guardEnded = unix.SIGUSR2 // what that process gets when its guard ends
)

// guard runs "agent exec guarded" with the standard streams of this process, and kills
// what that has left.
func guard() error {
	terms := watchdog.Signals()
	children, err := process.NewChildren()
	if err != nil {
		return err
	}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Pdeathsig: guardEnded}}
	child, err := children.Start("/proc/self/exe", []string{"plx", "agent", "exec", guarded}, attr, nil)
	if err != nil {
		return fmt.Errorf("start the agent of a command: %w", err)
	}
	for over := false; !over; {
		select {
		case <-child.Done():
			over = true
		case sig := <-terms:
			child.Signal(sig.(unix.Signal))
		}
	}
	if err := clearAll(children); err != nil {
		return err
	}
	if child.Status().Signaled() {
		return unix.Kill(os.Getpid(), unix.SIGKILL) // so that whoever waits for this process knows
	}
	return exited(child.Status().ExitStatus())
}

// clearAll kills all descendants of this process.
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
