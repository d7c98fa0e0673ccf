package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// noisy prints to both streams until a signal ends it.
const noisy = "\nwhile :; do echo noise; echo noise >&2; sleep 0.05; done"

func TestExitStatus(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	file := b.ResourceFile("h1", "h2")
	for _, c := range []struct {
		name, script string
		code         int
		last         []string // last lines of stderr, without the common prefix "plx: "
	}{
		{"all well", "exit 0", 0, []string{`job \S+ \(\S+\): done`}},
		{"a worker fails", `[ "$PLX_RANK" = 1 ] && { echo reason >&2; echo why >&2; exit 3; }; sleep 60`, 3,
			[]string{`job \S+ \(\S+\): worker:1 on h2 exited with status 3; its last lines are above`}},
		{"a worker is killed", `[ "$PLX_RANK" = 0 ] && kill -9 $$` + noisy, 137, []string{
			`job \S+ \(\S+\): worker:0 on h1 was ended by signal 9.*`, `hint: a user, .* killed it: .*`}},
		{"the host runs out of memory", `[ "$PLX_RANK" = 0 ] && { echo oom_kill 99 >vmstat; mount --bind vmstat /proc/vmstat; kill -9 $$; }` + noisy, 137, []string{
			`job \S+ \(\S+\): worker:0 on h1 was ended by signal 9 \(killed\): perhaps for want of memory: while it ran, the host's kernel killed \d+ processes for that.*`,
			`hint: plx exec --host h1 -- free -h .*`}},
		{"/dev/shm is full", `[ "$PLX_RANK" = 0 ] && { mount -t tmpfs -o size=8m tmpfs /dev/shm; head -c 9000000 /dev/zero >/dev/shm/x; kill -7 $$; }` + noisy, 135, []string{
			`job \S+ \(\S+\): worker:0 on h1 was ended by signal 7 \(bus error\): /dev/shm is full \(8 MiB, 0 left\).*`,
			`hint: plx exec --host h1 -- sh -c 'df -h /dev/shm; .*`}},
		{"a server fails", `[ "$PLX_ROLE" = ps ] && exit 7` + noisy, 7, []string{`job \S+ \(\S+\): ps:[01] on h[12] exited with status 7`}},
		{"a server ends early", `[ "$PLX_ROLE" = ps ] && exit 0; sleep 0.3`, 0, []string{`job \S+ \(\S+\): done`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := b.in(t)
			res := b.want(c.code, "launch", "--hosts", file, "--ps", "all", b.script("task", c.script))
			b.endsWith(res, c.last)
			b.hostsGone(0)
		})
	}
	t.Run("tasks print while they end", func(t *testing.T) { testLastLines(b.in(t), file) })
	t.Run("a server stays until told", func(t *testing.T) { testServersAreTold(b.in(t), file) })
	t.Run("not found", func(t *testing.T) {
		res := b.want(127, "launch", "--hosts", file, "no-such-command")
		if !strings.Contains(res.stderr, "no-such-command") {
			t.Errorf("stderr:\n%s", res.stderr)
		}
	})
	t.Run("missing here", func(t *testing.T) { b.want(127, "launch", "--hosts", file, "./no-such-file") })
	t.Run("not executable", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "plain")
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		b.want(126, "launch", "--hosts", file, path)
	})
	b.hostsGone(0)
}

// endsWith fails the test unless stderr ends with these lines, each after the
// prefix "plx: ".
func (b *bench) endsWith(res result, last []string) {
	b.t.Helper()
	text := res.stderr[max(0, len(res.stderr)-1<<10):]
	if !regexp.MustCompile(`(?:^|\n)plx: ` + strings.Join(last, `\nplx: `) + `\n\z`).MatchString(text) {
		b.t.Errorf("stderr does not end with %q but\n%s", last, text)
	}
}

// testLastLines has a task that prints much after the signal to end, while
// stderr is read slowly. So plx knows how the job ended while many lines are
// still to be printed.
func testLastLines(b *bench, file string) {
	listens := filepath.Join(b.shared(), "listens")
	r := b.start("launch", "--hosts", file, "--ps", "none", b.script("task", `[ "$PLX_RANK" = 1 ] && { until [ -e `+listens+` ]; do sleep 0.01; done; echo reason >&2; exit 3; }
trap "seq 100000 >&2; exit" TERM
touch `+listens+noisy))
	r.stderr.delay(10 * time.Millisecond)
	res := r.want(3)
	b.endsWith(res, []string{"last lines of worker:1 on h2:", "  reason", `job \S+ \(\S+\): worker:1 on h2 exited with status 3`})
	contains(b.t, res.stderr, "\nworker:0 h1 ! 99999\nworker:0 h1 ! 100000\n")
	b.hostsGone(0)
}

// testServersAreTold checks that plx signals servers to end when the workers
// have ended. Its grace period is longer than the test waits, so a server that
// gets no signal fails the test.
func testServersAreTold(b *bench, file string) {
	dir := b.shared()
	res := b.want(0, "launch", "--hosts", file, "--ps", "all", "--grace", "10m", b.script("task", `cd `+dir+`
if [ "$PLX_ROLE" = ps ]; then
	trap 'echo told; exit 0' TERM
	touch $PLX_TASK_INDEX
	while :; do sleep 0.05; done
fi
until [ -e 0 ] && [ -e 1 ]; do sleep 0.05; done`))
	for _, server := range []string{"ps:0", "ps:1"} {
		if got := lines(res.stdout, server); !slices.Equal(got, []string{"told"}) {
			b.t.Errorf("%s printed %q", server, got)
		}
	}
	b.hostsGone(0)
}
