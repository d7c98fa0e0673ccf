package e2e

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// README's first command, as it stands there, for somebody with an empty home:
// it builds plx and the example, and trains.
func TestFirstCommandOfREADME(t *testing.T) {
	if testing.Short() {
		t.Skip("builds plx")
	}
	const command = "go run . launch ./examples/mlp"
	contains(t, string(read(t, "../README.md")), "\n"+command+"\n")
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience) // it may have all to build
	defer cancel()
	words := strings.Fields(command)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env = "..", append(environ(), "HOME="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // go run alone would leave plx
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\nstdout:\n%s\nstderr:\n%s", command, err, clip(stdout.String()), clip(stderr.String()))
	}
	contains(t, stderr.String(), "plx: no --hosts given: an embedded cluster of 2 hosts with 1 worker each",
		"plx: building ./examples/mlp for ", " 2 workers, ", ": done\n")
	losses := trainLosses(t, stdout.String())
	if len(losses) < 2 || strings.Count(stdout.String(), "\n") != len(losses) || losses[len(losses)-1] > 0.1*losses[0] {
		t.Errorf("losses %v in\n%s", losses, stdout.String())
	}
}
