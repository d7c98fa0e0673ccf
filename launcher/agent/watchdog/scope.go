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

// Scope is the name of the scope that a process with a pid enters under a name.
func Scope(name string, pid int) string { return fmt.Sprintf("plx-%s-%d.scope", name, pid) }

// entering bounds the move into a scope.
const entering = 2 * time.Second

// EnterScope moves this process, and so the processes that it starts from then on, into a scope
// of the user's systemd. In a scope, logind does not kill a detached job when the login ends.
// name makes the scope's name unique. EnterScope reports whether it has moved the process, and
// runs programs for that.
func EnterScope(ctx context.Context, name string) bool {
	path, err := exec.LookPath("busctl")
	if err != nil || os.Getenv("XDG_RUNTIME_DIR") == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, entering)
	defer cancel()
	pid := strconv.Itoa(os.Getpid())
	unit := Scope(name, os.Getpid())
	const systemd = "org.freedesktop.systemd1"
	// The call that systemd-run --user --scope --collect makes for itself, see the page
	// org.freedesktop.systemd1 of systemd's manual.
	call := exec.CommandContext(ctx, path, "--user", "call", systemd, "/org/freedesktop/systemd1", systemd+".Manager",
		"StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "fail", "2", "PIDs", "au", "1", pid, "CollectMode", "s", "inactive-or-failed", "0")
	call.WaitDelay = entering
	if call.Run() != nil {
		return false
	}
	for ctx.Err() == nil { // systemd has only queued it
		if text, err := os.ReadFile("/proc/self/cgroup"); err != nil || bytes.Contains(text, []byte(unit)) {
			return err == nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}
