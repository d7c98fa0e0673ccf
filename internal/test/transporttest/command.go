package transporttest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/transport"
)

// testCommand checks that commands run as shell scripts, with their exit
// statuses and both output streams.
func testCommand(t *testing.T, open func(*testing.T) transport.Transport) {
	conn := opened(t, open)
	every := make([]byte, 0, 255) // all bytes except NUL
	for b := 1; b < 256; b++ {
		every = append(every, byte(b))
	}
	cases := []struct {
		name, command, stdout, stderr string
		status                        int
	}{
		{name: "nothing", command: ""},
		{name: "both outputs", command: "echo out; echo err >&2", stdout: "out\n", stderr: "err\n"},
		{name: "no final newline", command: "printf out; printf err >&2", stdout: "out", stderr: "err"},
		{name: "status 1", command: "echo out; exit 1", stdout: "out\n", status: 1},
		{name: "status 42", command: "exit 42", status: 42},
		{name: "status 255", command: "exit 255", status: 255},
		{name: "status of the last", command: "true\nfalse", status: 1},
		{name: "not found", command: "exec 2>/dev/null; plx-no-such-program", status: 127},
		{name: "SIGTERM", command: "kill -TERM $$", status: 128 + 15},
		{name: "SIGKILL", command: "kill -KILL $$", status: 128 + 9},
		{name: "every byte", command: "printf %s " + quote(string(every)), stdout: string(every)},
		{name: "lines", command: "for i in 1 2 3\ndo\n\techo \"$i\"\ndone\n", stdout: "1\n2\n3\n"},
		{name: "here document", command: "cat <<'END'\n$HOME `x` \\\\ ! 'q' \"\nEND\n", stdout: "$HOME `x` \\\\ ! 'q' \"\n"},
		{name: "comment at the end", command: "echo a # b", stdout: "a\n"},
		{name: "no arguments", command: "echo $#", stdout: "0\n"},
		{name: "no stdin", command: "cat", stdout: ""},
		{name: "long", command: "echo " + strings.Repeat("a", 40000), stdout: strings.Repeat("a", 40000) + "\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			err := conn.Run(t.Context(), c.command, nil, &stdout, &stderr)
			checkStatus(t, err, c.status)
			if stdout.String() != c.stdout || stderr.String() != c.stderr {
				t.Errorf("stdout %q, stderr %q, want %q, %q", stdout.String(), stderr.String(), c.stdout, c.stderr)
			}
		})
	}
	t.Run("syntax error", func(t *testing.T) {
		var stderr bytes.Buffer
		err := conn.Run(t.Context(), "if", nil, nil, &stderr)
		checkStatus(t, err, 2)
		if stderr.Len() == 0 {
			t.Error("the shell's message is missing")
		}
	})
	t.Run("NUL and too long are refused", func(t *testing.T) {
		for _, command := range []string{"echo a\x00b", ": " + strings.Repeat("a", 1<<20)} {
			if err := conn.Run(t.Context(), command, nil, nil, nil); err == nil || transport.ExitStatus(err) >= 0 {
				t.Errorf("%.20q...: %v, want an error of plx's own", command, err)
			}
		}
	})
}

func checkStatus(t *testing.T, err error, want int) {
	t.Helper()
	got := 0
	if err != nil {
		got = transport.ExitStatus(err)
	}
	if got != want {
		t.Errorf("exit status %d (%v), want %d", got, err, want)
	}
}

func quote(s string) string { return fmt.Sprintf("'%s'", strings.ReplaceAll(s, "'", `'\''`)) }
