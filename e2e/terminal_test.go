//go:build long

package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/testhosts"
)

func TestOutput(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2})
	t.Run("every byte", func(t *testing.T) { testEveryByte(b.in(t)) })
	t.Run("colour", func(t *testing.T) { testColour(b.in(t)) })
	t.Run("grep", func(t *testing.T) {
		res := b.in(t).want(0, "launch", "--host", "h1", "--ps", "none", "--grep", `^loss=\d`, b.script("s", "echo loss=1; echo no loss=2; echo loss=x; echo loss=3 >&2"))
		if got := strings.Join(lines(res.stdout, "worker:0"), "|"); got != "loss=1" {
			t.Errorf("stdout: %q", got)
		}
		if got := strings.Join(lines(res.stderr, "worker:0"), "|"); got != "loss=3" {
			t.Errorf("stderr: %q", got)
		}
	})
	t.Run("one message of all", func(t *testing.T) {
		b := b.in(t)
		res := b.want(3, "launch", "--hosts", b.ResourceFile("h1", "h2"), "--ps", "none", b.script("s", `cd `+b.shared()+`; touch $PLX_RANK; until [ -e 0 ] && [ -e 1 ]; do sleep 0.01; done
echo starts >&2
printf 'Traceback (most recent call last):\n  File "'$PLX_DIR'/x.py", line 1\nValueError: no data\n' >&2; exit 3`))
		contains(t, res.stderr, "2 workers 2 hosts ! starts\n", "2 workers 2 hosts ! ValueError: no data\n", "exited with status 3; its traceback is above\n")
		if n := strings.Count(res.stderr, "ValueError"); n != 1 {
			t.Errorf("the traceback is printed %d times:\n%s", n, res.stderr)
		}
	})
	t.Run("nobody reads", func(t *testing.T) { testNobodyReads(b.in(t)) })
	t.Run("nohup", func(t *testing.T) { testNoHangup(b.in(t)) })
	t.Run("terminal", func(t *testing.T) { testTerminal(b.in(t)) })
	t.Run("Ctrl-C on a terminal", func(t *testing.T) { testTypedInterrupt(b.in(t)) })
	b.hostsGone(0)
}

// testEveryByte compares what a task says it wrote with what arrived: in the
// files of --log-dir to the byte, on plx's stdout to the line, and of a redrawn line its
// last state. So does plx's stderr with --verbose. Without it plx prints a line that both
// tasks write within a second once, and lines of one task may change their order. The random
// bytes are without backspace and escape, by which a program redraws too: lastStates knows
// carriage returns alone.
func testEveryByte(b *bench) {
	out := b.shared()
	flood := b.script("flood", `flood() {
	echo first
	head -c $1 /dev/urandom | base64 -w0; echo  # up to 10 MB in one line
	for i in $(seq 200); do printf 'step %d\r' $i; done; echo
	head -c 300000 /dev/urandom | tr -d '[\010\033'
	printf '\n\n\0\0\n'
	printf 'no newline at the end'
}
flood $1 | tee `+out+`/$PLX_RANK.out
flood $1 2>/dev/null | tee `+out+`/$PLX_RANK.err >&2
`)
	for verbose, long := range map[bool]string{true: "7500000", false: "75000"} {
		kept := filepath.Join(b.t.TempDir(), "logs")
		res := b.want(0, "launch", "--hosts", b.ResourceFile("h1", "h2"), "--ps", "none", fmt.Sprint("--verbose=", verbose), "--log-dir", kept, flood, long)
		for rank := range 2 {
			task := fmt.Sprintf("worker:%d", rank)
			sent := map[string][]byte{}
			for stream, name := range map[string]string{"out": "stdout", "err": "stderr"} {
				text := read(b.t, filepath.Join(out, fmt.Sprintf("%d.%s", rank, stream)))
				files, err := filepath.Glob(filepath.Join(kept, fmt.Sprintf("*worker*%d*%s*", rank, name)))
				if err != nil || len(files) != 1 {
					b.t.Fatalf("--log-dir: files of worker:%d's %s: %q, %v; all: %v", rank, name, files, err, list(kept))
				}
				same(b.t, files[0], text, read(b.t, files[0]))
				sent[stream] = lastStates(append(text, '\n'))
			}
			same(b.t, "plx's stdout of "+task, sent["out"], unprefixed(res.stdout, task))
			if shown := unprefixed(res.stderr, task+"|2 workers"); verbose {
				same(b.t, "plx's stderr of "+task+" with --verbose", sent["err"], shown)
			} else {
				same(b.t, "plx's stderr of "+task+", in any order", sortLines(sent["err"]), sortLines(shown))
			}
		}
	}
}

// sortLines returns the lines of text in sorted order.
func sortLines(text []byte) []byte {
	return bytes.Join(slices.SortedFunc(bytes.Lines(text), bytes.Compare), nil)
}

// lastStates removes, from each line that was redrawn by carriage returns,
// everything except its last state.
func lastStates(text []byte) (all []byte) {
	for line := range bytes.Lines(text) {
		states := bytes.Split(bytes.TrimRight(bytes.TrimSuffix(line, []byte("\n")), "\r"), []byte("\r"))
		last := states[len(states)-1]
		if bytes.HasSuffix(line, []byte("\r\n")) && len(bytes.TrimSpace(last)) == 0 {
			last = nil
		}
		all = append(append(all, last...), '\n')
	}
	return all
}

func list(folder string) []string {
	var names []string
	entries, _ := os.ReadDir(folder) // for a message only
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func same(t *testing.T, what string, want, got []byte) {
	t.Helper()
	if !bytes.Equal(want, got) {
		at := 0
		for at < min(len(want), len(got)) && want[at] == got[at] {
			at++
		}
		t.Errorf("%s: %d bytes with sha256 %.4x, the task wrote %d with %.4x; they differ at %d", what, len(got), sha256.Sum256(got), len(want), sha256.Sum256(want), at)
	}
}

// unprefixed extracts the lines of one task and joins them without their
// prefix. task is a pattern for the task's name in the prefix.
func unprefixed(text, task string) []byte {
	prefix := regexp.MustCompile(`^(?:` + task + `) +(?:h\d|2 hosts) +[|!]+(?: |\n)`)
	var all []byte
	for line := range strings.Lines(text) {
		if p := prefix.FindString(line); strings.HasSuffix(p, "\n") {
			all = append(all, '\n') // the prefix of an empty line has no space at its end
		} else if p != "" {
			all = append(all, line[len(p):]...)
		}
	}
	return all
}

func testColour(b *bench) {
	script := b.script("s", "echo out; echo err >&2")
	coloured := func(env []string, args ...string) (stdout, stderr bool) {
		b.env = env
		res := b.want(0, append(append([]string{"launch", "--host", "h1", "--ps", "none"}, args...), script)...)
		return strings.Contains(res.stdout, "\x1b["), strings.Contains(res.stderr, "\x1b[")
	}
	if out, err := coloured(nil); out || err {
		b.t.Errorf("into a pipe: colour on stdout %v, on stderr %v", out, err)
	}
	if out, err := coloured([]string{"NO_COLOR=1"}, "--color", "always"); !out || !err {
		b.t.Errorf("--color always: colour on stdout %v, on stderr %v", out, err)
	}
}

// testNobodyReads runs "plx launch ... | head -1", in which head stops reading
// after one line.
func testNobodyReads(b *bench) {
	r, w, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Close()
	cmd, stderr := b.command("launch", "--hosts", b.ResourceFile("h1", "h2"), "--grace", "2s", b.script("s", "while echo line; do sleep 0.01; done")), newWatched()
	cmd.Stdout, cmd.Stderr = w, stderr
	run := b.spawn(cmd, stderr)
	w.Close()
	if _, err := r.Read(make([]byte, 10)); err != nil {
		b.t.Fatalf("%v\n%s", err, stderr)
	}
	r.Close()
	res := run.want(141)
	contains(b.t, res.stderr, "no longer read")
	b.hostsGone(0)
}

// testNoHangup closes the terminal on which "nohup plx launch ..." runs.
func testNoHangup(b *bench) {
	program, plx := b.holder("nohup"), b.plx
	b.plx = "nohup"
	r := b.start(plx, "launch", "--host", "h1", "--ps", "none", program.path)
	r.awaitLine("worker:0", "up")
	r.signal(syscall.SIGHUP)
	b.plx = plx
	if j := b.jobsOf()[b.id("nohup")]; j.State != "running" {
		b.t.Errorf("plx jobs: %+v", j)
	}
	program.end(b.t, 0)
	contains(b.t, r.want(0).stdout, "last line")
	b.hostsGone(0)
}

// testTerminal runs plx on a terminal, with a task that prints terminal
// sequences.
func testTerminal(b *bench) {
	b.plx = fatter(b) // The hosts already have plx, so use a different binary that must be sent.
	script := b.script("s", `printf 'plain\n\033]0;title\007\033[2Jhidden?\033[31mred\033[0m\n\302\233bell\007 \033Pq\033\\end\n'
printf 'one\rtwo\rthree\nupper\nlower\n'; for i in 1 2; do printf '\033[A\033[K'; done; echo again; echo problem >&2`)
	text := onTerminal(b, 0, nil, "launch", "--no-status", "--host", "h1", "--ps", "none", script)
	for _, bad := range []string{"\x1b]", "\x1b[2J", "\x07", "\x1bP", "\xc2\x9b", "\x1b[A"} {
		tasks := text[strings.Index(text, "plain"):]
		if strings.Contains(tasks, bad) {
			b.t.Errorf("%q reached the terminal:\n%q", bad, clip(text))
		}
	}
	if !regexp.MustCompile(`\x1b\[38;5;\d+mworker:0`).MatchString(text) || !strings.Contains(text, "\x1b[31mred") {
		b.t.Errorf("no colour:\n%q", clip(text))
	}
	screen := rendered(text)
	contains(b.t, screen, "sent ", "| plain", "hidden?red", "| three\n", "| again", "problem")
	for _, gone := range []string{"| one", "| two", "upper", "lower"} {
		if strings.Contains(screen, gone) {
			b.t.Errorf("%q is still there:\n%s", gone, screen)
		}
	}
	if strings.Contains(screen, "sending") {
		b.t.Errorf("the progress bar is still there:\n%s", screen)
	}
	if !strings.Contains(text, "sending") {
		b.t.Errorf("there was no progress bar:\n%q", clip(text))
	}
	b.env = []string{"NO_COLOR=1"}
	if text := onTerminal(b, 0, nil, "launch", "--host", "h1", "--ps", "none", script); regexp.MustCompile(`\x1b\[[0-9;]+m`).MatchString(text) {
		b.t.Errorf("colour in spite of NO_COLOR:\n%q", clip(text))
	}
}

// fatter returns a copy of plx that has another content hash.
func fatter(b *bench) string {
	dir, err := os.MkdirTemp(filepath.Dir(b.plx), "other-")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "plx")
	if err := executable.Write(path, append(read(b.t, b.plx), b.t.Name()...), 0o755); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// testTypedInterrupt types Ctrl-C, so the terminal sends SIGINT to plx's
// process group. The tasks must receive SIGINT, too, and SIGTERM after half of
// the grace period.
func testTypedInterrupt(b *bench) {
	script := b.script("s", "trap 'echo interrupted' INT; trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; done")
	text := onTerminal(b, 130, func(seen string, terminal io.Writer) bool {
		if !strings.Contains(rendered(seen), "| up") {
			return false
		}
		terminal.Write([]byte{3}) // ignore the error: if this write fails, plx continues and the test fails
		return true
	}, "launch", "--host", "h1", "--ps", "none", "--grace", "6s", script)
	contains(b.t, rendered(text), "| interrupted", "| asked", "stopped by Ctrl-C")
	b.hostsGone(0)
}
