package notify

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/protocol"
)

// output collects what has been printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// notifier returns a Notifier and the output that it prints on stderr.
func notifier(t *testing.T, command string) (*Notifier, *output) {
	var stdout, stderr output
	t.Cleanup(func() {
		if text := stdout.String(); text != "" {
			t.Errorf("on stdout: %s", text)
		}
	})
	return New(command, console.NewPrinter(console.Terminal{Stdout: &stdout, Stderr: &stderr})), &stderr
}

func TestEnvironmentOfTheCommand(t *testing.T) {
	t.Setenv("PLX_STATUS", "of another job")
	t.Setenv("PLX_JOB_NAME", "of another job")
	t.Setenv("KEPT", "kept")
	begun := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	ended := func(v protocol.Verdict) Event {
		v.Ended = begun.Add(90500 * time.Millisecond)
		return Ended("j-1", "j", begun, v)
	}
	for _, c := range []struct {
		event Event
		want  string
	}{
		{ended(protocol.Verdict{Reason: "done"}), "done|0|done|j-1|j|90|kept"},
		{ended(protocol.Verdict{Code: 3, Reason: "worker:0 on h1\nexited\x00 with \astatus 3"}), `failed|3|worker:0 on h1; exited\x00 with \x07status 3|j-1|j|90|kept`},
		{ended(protocol.Verdict{Code: 130, Reason: protocol.StoppedBy + protocol.CtrlC}), "stopped|130|" + protocol.StoppedBy + protocol.CtrlC + "|j-1|j|90|kept"},
		{ended(protocol.Verdict{Code: 124, Reason: "hung: x", Hang: &protocol.Hang{}}), "hang|124|hung: x|j-1|j|90|kept"},
		{Event{Kind: Hung, Job: "j-1", Verdict: "hung: x"}, "hang|unset|hung: x|j-1|unset|0|kept"},
		{Event{Kind: Failed, Ended: true, Code: 125, Verdict: strings.Repeat("ä", mostText)}, "failed|125|" + strings.Repeat("ä", mostText/2) + "|unset|unset|0|kept"},
	} {
		file := filepath.Join(t.TempDir(), "said")
		t.Setenv("FILE", file)
		n, out := notifier(t, `printf %s "${PLX_EVENT-unset}|${PLX_STATUS-unset}|${PLX_VERDICT-unset}|${PLX_JOB-unset}|${PLX_JOB_NAME-unset}|${PLX_SECONDS-unset}|$KEPT" >"$FILE"`)
		n.End(t.Context(), c.event)
		said, err := os.ReadFile(file)
		if err != nil || string(said) != c.want || out.String() != "" {
			t.Errorf("the command was told %q (%v), want %q; plx printed %q", said, err, c.want, out)
		}
	}
}

// plx prints the command's output and its error on stderr, and nothing else.
func TestOutputOfTheCommandIsPrinted(t *testing.T) {
	const more = "plx: notify: ... (more output omitted)\n"
	for command, want := range map[string]string{
		"true":                                "",
		"echo":                                "",
		`echo one; printf '\033[2Jtwo' >&2`:   "plx: notify: one\nplx: notify: \\x1b[2Jtwo\n",
		"echo gone >&2; exit 3":               "plx: notify: gone\nplx: warning: --notify: the command failed: exit status 3\n",
		"kill -TERM $$":                       "plx: warning: --notify: the command failed: signal: terminated\n",
		"echo 'unfinished":                    "plx: warning: --notify: the command failed: exit status 2\n",
		"seq 5":                               "plx: notify: 1\nplx: notify: 2\nplx: notify: 3\nplx: notify: 4\nplx: notify: 5\n",
		"seq 6":                               "plx: notify: 1\nplx: notify: 2\nplx: notify: 3\nplx: notify: 4\nplx: notify: 5\n" + more,
		"seq 1000000":                         "plx: notify: 1\nplx: notify: 2\nplx: notify: 3\nplx: notify: 4\nplx: notify: 5\n" + more,
		"head -c 9000 /dev/zero | tr '\\0' x": "plx: notify: " + strings.Repeat("x", mostOutput) + "\n" + more,
		"cat; echo read":                      "plx: notify: read\n", // its input is empty
	} {
		n, out := notifier(t, command)
		n.End(t.Context(), Event{Kind: Done})
		got := out.String()
		if command == "echo 'unfinished" { // sh prints its syntax errors with its own name in front
			got = got[strings.Index(got, "plx: warning"):]
		}
		if got != want {
			t.Errorf("%s: printed %q, want %q", command, got, want)
		}
	}
}

// A command that takes too long is killed with its child processes, even if
// they ignore SIGTERM. Background processes of a command that has ended are
// killed too.
func TestLateCommandIsKilled(t *testing.T) {
	for command, want := range map[string]string{
		"echo begun; trap '' TERM; (trap '' TERM; echo $$ >$FILE; sleep 60) & echo $! >$FILE; wait": "plx: notify: begun\nplx: warning: --notify: killed the command and its child processes after 300ms\n",
		"yes & echo $! >$FILE; wait": "plx: notify: y\nplx: notify: y\nplx: notify: y\nplx: notify: y\nplx: notify: y\nplx: notify: ... (more output omitted)\nplx: warning: --notify: killed the command and its child processes after 300ms\n",
		"sleep 60 & echo $! >$FILE":  "",
	} {
		file := filepath.Join(t.TempDir(), "pid")
		t.Setenv("FILE", file)
		n, out := notifier(t, command)
		n.limit = 300 * time.Millisecond
		if want == "" {
			n.limit = time.Minute
		}
		begun := time.Now()
		n.End(t.Context(), Event{Kind: Done})
		if took := time.Since(begun); took > patience.Limit {
			t.Errorf("%s: took %s", command, took)
		}
		if out.String() != want {
			t.Errorf("%s: printed %q, want %q", command, out, want)
		}
		pid, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for begun := time.Now(); runs(strings.TrimSpace(string(pid))); time.Sleep(5 * time.Millisecond) {
			if time.Since(begun) > patience.Limit {
				t.Fatalf("%s: process %s still runs", command, pid)
			}
		}
	}
}

// runs reports whether the process exists and is no zombie that init has not
// reaped yet.
func runs(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// An interrupt by the user kills the command for the job's end and a command
// for a hang.
func TestInterruptKillsTheCommand(t *testing.T) {
	for _, hang := range []bool{false, true} {
		n, out := notifier(t, "sleep 60")
		ctx, cancel := context.WithCancelCause(t.Context())
		if hang {
			n.Hang(Event{Kind: Hung})
		}
		time.AfterFunc(100*time.Millisecond, func() { cancel(errors.New("Ctrl-C")) })
		begun := time.Now()
		n.End(ctx, Event{Kind: Done})
		if took := time.Since(begun); took >= limit || out.String() != "plx: warning: --notify: killed the command: Ctrl-C\n" {
			t.Errorf("hang %v: after %s: %s", hang, took, out)
		}
	}
	n, out := notifier(t, "echo run")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n.End(ctx, Event{Kind: Done})
	if out.String() != "" {
		t.Errorf("after a signal: %s", out)
	}
}

// The command for a hang runs in the background, never twice at once, and ends
// before the command for the job's end begins.
func TestHangDoesNotWaitForTheCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go")
	t.Setenv("FILE", file)
	n, out := notifier(t, `echo $PLX_EVENT $PLX_VERDICT; until [ -e "$FILE" ]; do sleep 0.01; done`)
	n.Hang(Event{Kind: Hung, Verdict: "first"})
	n.Hang(Event{Kind: Hung, Verdict: "second"})
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-n.running
	n.Hang(Event{Kind: Hung, Verdict: "third"})
	n.End(t.Context(), Event{Kind: Done, Verdict: "done"})
	const want = "plx: warning: --notify: the command of the last hang is still running, so it is not run again\nplx: notify: hang first\nplx: notify: hang third\nplx: notify: done done\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out, want)
	}
	var none *Notifier
	none.Hang(Event{})
	none.End(t.Context(), Event{})
	if New("", nil) != nil {
		t.Error("there is a Notifier without a command")
	}
}
