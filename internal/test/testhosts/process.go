package testhosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
)

// Processes returns all processes of the host, or none if its power is off. It
// reads the process table from outside the host, so the result does not
// contain a process that Processes has started.
func (h *Host) Processes() ([]Process, error) {
	return h.processes(func(string) bool { return true })
}

// processes returns the processes of the host for whose names the function
// meant returns true.
func (h *Host) processes(meant func(name string) bool) ([]Process, error) {
	h.mu.Lock()
	b := h.boot
	h.mu.Unlock()
	if b == nil {
		return nil, nil
	}
	all, err := b.table.read(meant)
	if err != nil {
		return nil, fmt.Errorf("process table of %s: %w", h.Name, err)
	}
	return all, nil
}

// Strays returns the processes that are not part of the SSH server. A client
// runs these programs on the host, or has left them behind.
func (h *Host) Strays() ([]Process, error) {
	return h.processes(func(name string) bool { return !isServer(name) })
}

func isServer(name string) bool { return strings.HasPrefix(name, "sshd") || name == "sftp-server" }

// AwaitIdle waits until the host has no strays (processes that are not part of
// the SSH server). If ctx ends first, it returns an error that lists the
// strays.
func (h *Host) AwaitIdle(ctx context.Context) error {
	for {
		strays, err := h.Strays()
		if err != nil || len(strays) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("host %s: processes are left: %v", h.Name, strays)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Freeze sends SIGSTOP to all processes of the host. The kernel still
// acknowledges TCP segments that arrive.
func (h *Host) Freeze() {
	h.cluster.report.Helper()
	asked := map[int]bool{}
	h.cluster.check("freeze "+h.Name, h.signalUntil(syscall.SIGSTOP, func(p Process) bool {
		// A process in state D waits in vfork for a child that was stopped
		// before its exec. The process has a pending SIGSTOP, so it stops
		// before it does anything else.
		if p.State == 'D' {
			waits := asked[p.PID]
			asked[p.PID] = true
			return waits
		}
		return p.State == 'T' || p.State == 'Z'
	}))
}

// Thaw sends SIGCONT to all processes until none is stopped, even to those
// that were stopped before Freeze. It first signals every process, whether the
// process is stopped or not. A process in vfork is not stopped yet, and
// SIGCONT cancels its pending SIGSTOP.
func (h *Host) Thaw() {
	h.cluster.report.Helper()
	frozen, err := h.Processes()
	h.cluster.check("thaw "+h.Name, err)
	for _, p := range frozen {
		if err := p.Signal(syscall.SIGCONT); !errors.Is(err, os.ErrProcessDone) {
			h.cluster.check("thaw "+h.Name, err)
		}
	}
	h.cluster.check("thaw "+h.Name, h.signalUntil(syscall.SIGCONT, func(p Process) bool {
		return p.State != 'T'
	}))
}

// signalUntil sends the signal s to all processes until done returns true for
// each of them. It repeats this, because running processes may start other
// processes at the same time.
func (h *Host) signalUntil(s syscall.Signal, done func(Process) bool) error {
	for deadline := time.Now().Add(patience.Limit); ; time.Sleep(2 * time.Millisecond) {
		all, err := h.Processes()
		if err != nil {
			return err
		}
		left := 0
		for _, p := range all {
			if done(p) {
				continue
			}
			left++
			if err := p.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return err
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes do not follow %v", left, s)
		}
	}
}
