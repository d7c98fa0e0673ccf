//go:build linux

package watchdog

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// Scope returns the name of the systemd scope unit for a job's name and the
// watchdog's pid.
func Scope(name string, pid int) string { return fmt.Sprintf("plx-%s-%d.scope", name, pid) }

// enterTimeout is the timeout for moving this process into a systemd scope.
const enterTimeout = 2 * time.Second

// EnterScope moves this process, and all processes that it will start, into a
// scope unit of the user's systemd. In a scope, logind does not kill a
// detached job when the user logs out. name makes the unit's name unique.
// EnterScope runs the program busctl, and reports whether the move has
// succeeded.
func EnterScope(ctx context.Context, name string) bool {
	path, err := exec.LookPath("busctl")
	if err != nil || os.Getenv("XDG_RUNTIME_DIR") == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, enterTimeout)
	defer cancel()
	pid := strconv.Itoa(os.Getpid())
	unit := Scope(name, os.Getpid())
	const systemd = "org.freedesktop.systemd1"
	// This D-Bus call does the same as systemd-run --user --scope --collect;
	// see the manual page org.freedesktop.systemd1.
	call := exec.CommandContext(ctx, path, "--user", "call", systemd, "/org/freedesktop/systemd1", systemd+".Manager",
		"StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "fail", "2", "PIDs", "au", "1", pid, "CollectMode", "s", "inactive-or-failed", "0")
	call.WaitDelay = enterTimeout
	if call.Run() != nil {
		return false
	}
	for ctx.Err() == nil { // systemd moves this process to the scope later: wait until /proc shows the move
		if text, err := os.ReadFile("/proc/self/cgroup"); err != nil || bytes.Contains(text, []byte(unit)) {
			return err == nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}
