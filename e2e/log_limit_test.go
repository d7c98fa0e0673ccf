package e2e

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/testhosts"
)

// TestLogLimit has a task print twelve times its --log-limit. The task ends as well as
// any other, its host keeps the newest megabyte, and a reader that was overtaken, live or
// later, prints one line where bytes are missing, with their number.
func TestLogLimit(t *testing.T) {
	t.Parallel()
	const limit, printed = 1 << 20, 3 + 100_000*121 + 5 // "up", the lines, "done"
	b := newBench(t, testhosts.Options{Hosts: 1})
	dir := b.shared()
	b.env = append(b.env, "PLX_LOG_LIMIT=1MiB")
	job := b.detach("--hosts", b.ResourceFile(), "--ps", "none", b.script("flood", `echo up
while [ ! -e `+dir+`/go ]; do sleep 0.05; done
seq -f %0120.0f 1 100000
touch `+dir+`/flooded
while [ ! -e `+dir+`/end ]; do sleep 0.05; done
echo done
`))
	live, goOn := b.stalled("logs", "-f", "--json", job)
	attached, goOnToo := b.stalled("attach", job)
	put(t, filepath.Join(dir, "go"), "", 0o644)
	b.appear(filepath.Join(dir, "flooded"))
	goOn()
	goOnToo()
	put(t, filepath.Join(dir, "end"), "", 0o644)
	for name, res := range map[string]result{"live": live.want(0), "later": b.want(0, "logs", "--json", job)} {
		if n, gaps := countJSON(t, res.stdout); n != printed || gaps == 0 {
			t.Errorf("%s: %d bytes in lines or missing, want %d; %d gaps", name, n, printed, gaps)
		}
	}
	kept, err := filepath.Glob(filepath.Join(b.Hosts[0].HomeDir, ".plx", "jobs", "*", "*", "logs", "*"))
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, file := range kept {
		sum += length(file)
	}
	if sum > limit || sum < limit/2 {
		t.Errorf("the host keeps %d bytes in %q", sum, kept)
	}
	for name, res := range map[string]result{"attach": attached.want(0), "logs": b.want(0, "logs", job)} {
		got := lines(res.stdout, "worker:0")
		said := 0
		for _, line := range got {
			if strings.HasPrefix(line, "plx: ") && strings.HasSuffix(line, " bytes are missing here: the oldest output was dropped (--log-limit)") {
				said++
			}
		}
		last := strings.Repeat("0", 114) + strconv.Itoa(100_000)
		if said == 0 || len(got) < 2 || got[len(got)-2] != last || got[len(got)-1] != "done" {
			t.Errorf("%s: %d lines tell of missing bytes among %d, which end in %q", name, said, len(got), got[max(len(got)-2, 0):])
		}
	}
	b.hostsGone(patience)
}

// stalled starts a plx that shows logs, and takes no more from it than its first words
// until goOn is called.
func (b *bench) stalled(args ...string) (r *running, goOn func()) {
	b.t.Helper()
	tap := &tap{watched: newWatched(), opened: make(chan struct{})}
	cmd, stderr := b.command(args...), newWatched()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = tap, stderr, 5*time.Second
	r = b.spawn(cmd, stderr)
	r.stdout = tap.watched
	goOn = sync.OnceFunc(func() { close(tap.opened) })
	b.t.Cleanup(goOn) // else its end would be waited for in vain
	r.await(r.stdout, "up")
	return r, goOn
}

// countJSON counts the bytes of the lines of plx logs --json, those that are told to be
// missing included, and how often some are.
func countJSON(t *testing.T, output string) (n int64, gaps int) {
	t.Helper()
	for text := range strings.Lines(output) {
		line := struct {
			Line    string
			Newline *bool
			Dropped int64
		}{}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		switch {
		case line.Dropped > 0:
			n, gaps = n+line.Dropped, gaps+1
		case line.Newline != nil:
			n += int64(len(line.Line))
		default:
			n += int64(len(line.Line)) + 1
		}
	}
	return n, gaps
}
