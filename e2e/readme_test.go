package e2e

import (
	"bytes"
	"context"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/patience"
)

// slow are the lines about work that takes longer than 3 s, such as a build on a slow
// machine. They come again every minute.
var slow = regexp.MustCompile(`(?m)^plx: (preparing|building|connecting|probing|sending|starting agents)\b.*\n`)

// README's first command, as it stands there, for somebody with an empty home:
// it builds plx and the example, and trains.
func TestFirstCommandOfREADME(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds plx")
	}
	const command = "go run . launch ./examples/mlp"
	contains(t, string(read(t, "../README.md")), "\n"+command+"\n")
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience.Limit) // it may have all to build
	defer cancel()
	words := strings.Fields(command)
	home := t.TempDir()
	run := func(words ...string) (stdout, stderr string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir, cmd.Env = "..", append(environ(), "HOME="+home)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // go run alone would leave plx
		cmd.WaitDelay = 5 * time.Second
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\nstdout:\n%s\nstderr:\n%s", words, err, clip(out.String()), clip(errs.String()))
		}
		return out.String(), errs.String()
	}
	stdout, stderr := run(words...)
	contains(t, stderr, "plx: no --hosts given: an embedded cluster of 2 hosts with 1 worker each", ": done\n")
	if n := strings.Count(slow.ReplaceAllString(stderr, ""), "\n"); n > 6 {
		t.Errorf("%d lines on stderr, want 6 at most:\n%s", n, stderr)
	}
	losses := trainLosses(t, stdout)
	if len(losses) < 2 || strings.Count(stdout, "\n") != 1+len(losses) || losses[len(losses)-1] > 0.1*losses[0] {
		t.Errorf("losses %v in\n%s", losses, stdout)
	}
	// Everything else is in the job's record and logs.
	again, more := run("go", "run", ".", "logs", "-v")
	contains(t, more, "TASK ", "worker:1 127.0.0.3 cpu", "! plx: 2 workers, allreduce", `! plx: variable "w0" `, "busiest link, measured over ")
	if again != stdout {
		t.Errorf("plx logs prints\n%s\nthe launch printed\n%s", again, stdout)
	}
}
