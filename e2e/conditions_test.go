package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// Programs that the fault tests launch. Each prints "up" as soon as it is
// ready for a fault.
const (
	// patient runs until it receives a signal to end, and then ends.
	patient = "echo up\nwhile :; do sleep 0.2; done\n"

	// stubborn ignores signals to end. Its two child processes ignore them
	// too; they have left its session and no longer have a parent, and one of
	// them has an empty environment.
	stubborn = `trap '' TERM HUP INT
(setsid bash -c 'trap "" TERM; exec sleep 1001' </dev/null >/dev/null 2>&1 &)
(env -i setsid bash -c 'trap "" TERM; exec sleep 1002' </dev/null >/dev/null 2>&1 &)
echo up
while :; do sleep 0.2; done
`
)

// up waits until each of the given tasks has printed "up".
func (r *running) up(tasks ...string) {
	r.t.Helper()
	r.until("tasks are up", func() bool {
		out := r.stdout.String()
		return !slices.ContainsFunc(tasks, func(task string) bool { return !slices.Contains(lines(out, task), "up") })
	})
}

// until waits until a condition on the output of plx is true.
func (r *running) until(what string, met func() bool) {
	r.t.Helper()
	limit := time.After(patience.Limit)
	for {
		r.stdout.mu.Lock()
		changed := r.stdout.changed
		r.stdout.mu.Unlock()
		if met() {
			return
		}
		select {
		case <-changed:
		case <-r.done:
			if !met() {
				r.t.Fatalf("plx %q ended before %s\nstdout:\n%s\nstderr:\n%s", r.args, what, clip(r.stdout.String()), clip(r.stderr.String()))
			}
			return
		case <-limit:
			r.t.Fatalf("plx %q: not in time: %s\nstdout:\n%s\nstderr:\n%s", r.args, what, clip(r.stdout.String()), clip(r.stderr.String()))
		}
	}
}

// watchdog is the process name of a job's watchdog, the process that kills the
// job's tasks if its agent dies. Its arguments are those of "plx agent start".
const watchdog = "plx-watchdog"

// process waits for a process on host h with the given name or command line.
func (b *bench) process(h *testhosts.Host, args ...string) testhosts.Process {
	b.t.Helper()
	want := strings.Join(args, " ")
	for deadline := time.Now().Add(patience.Limit); ; time.Sleep(10 * time.Millisecond) {
		all := b.processes(h)
		for _, p := range all {
			if p.Name == want || strings.Contains(strings.Join(p.Args, " "), want) {
				return p
			}
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("host %s: no process %q among %v", h.Name, want, all)
		}
	}
}

func (b *bench) processes(h *testhosts.Host) []testhosts.Process {
	b.t.Helper()
	all, err := h.Processes()
	if err != nil {
		b.t.Fatal(err)
	}
	if b.allocation != nil {
		all = slices.DeleteFunc(all, isSlurm)
	}
	return all
}

// isSlurm reports whether a process belongs to Slurm itself, not to a job.
func isSlurm(p testhosts.Process) bool {
	return slices.Contains([]string{"slurmd", "slurmctld", "slurmscriptd", "slurmstepd", "munged"}, p.Name)
}

// awaitIdle waits until a host runs no processes other than its servers.
func (b *bench) awaitIdle(ctx context.Context, h *testhosts.Host) error {
	for {
		left := slices.DeleteFunc(b.processes(h), func(p testhosts.Process) bool { return p.Server })
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("host %s: processes are left: %v", h.Name, left)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// kill kills process p, and fails the test if p no longer exists.
func (b *bench) kill(p testhosts.Process) {
	b.t.Helper()
	if err := p.Signal(syscall.SIGKILL); err != nil {
		b.t.Fatalf("%v: %v", p, err)
	}
}

// gone fails the test unless, within limit, all processes of plx and of its
// tasks on the given hosts have ended.
func (b *bench) gone(limit time.Duration, hosts ...*testhosts.Host) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, h := range hosts {
		if err := h.AwaitIdle(ctx); err != nil {
			b.t.Error(err)
		}
	}
}

// took fails the test if more than limit has passed since start.
func (b *bench) took(what string, start time.Time, limit time.Duration) {
	b.t.Helper()
	took := time.Since(start)
	b.t.Logf("%s: %.1fs", what, took.Seconds())
	if took > limit {
		b.t.Errorf("%s took %v, more than %v", what, took, limit)
	}
}

// says fails the test unless one line that plx itself wrote contains all given
// words.
func (b *bench) says(res result, words ...string) {
	b.t.Helper()
	for line := range strings.Lines(res.stderr) {
		if strings.HasPrefix(line, "plx: ") && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return
		}
	}
	b.t.Errorf("no line of plx says %q\nstderr:\n%s", words, clip(res.stderr))
}

// waited matches the progress lines that plx prints about work that takes
// longer than 3 s.
var waited = regexp.MustCompile(`^plx: (\w.*: \d+ of \d+ |sending.*: (nothing yet|\d+% of )|(reading|hashing|building|preparing|packing|starting|looking|installing|importing|waiting|ending|counting|the tasks run) ?)`)

// brief fails the test if a successful launch printed more than six lines of
// plx's own. Progress lines, which appear on a slow machine, are not counted.
func (b *bench) brief(res result) {
	b.t.Helper()
	own := 0
	for line := range strings.Lines(res.stderr) {
		if strings.HasPrefix(line, "plx: ") && !waited.MatchString(line) {
			own++
		}
	}
	if own == 0 || own > 6 {
		b.t.Errorf("plx printed %d lines of its own, not 1 to 6:\n%s", own, clip(res.stderr))
	}
}

// spool returns the path of the log file in which host h keeps one output
// stream of a task. The host must have the logs of exactly one job.
func (b *bench) spool(h *testhosts.Host, file string) string {
	b.t.Helper()
	found, err := filepath.Glob(filepath.Join(h.HomeDir, ".plx", "jobs", "*", "*", "logs", file))
	if err != nil || len(found) != 1 {
		b.t.Fatalf("host %s: spools %q: %v, %v", h.Name, file, found, err)
	}
	return found[0]
}

// exists reports whether the file path exists.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// appear waits until all files of paths exist.
func (b *bench) appear(paths ...string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience.Limit); slices.ContainsFunc(paths, func(p string) bool { return !exists(p) }); {
		if time.Now().After(deadline) {
			b.t.Fatalf("not all of %q appeared", paths)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// lease is the shortest lease that these tests use. plx itself accepts 5 s or
// more.
const lease = 8 * time.Second

// brief returns the flags of a launch with a short lease and grace period, for
// tests in which the launch loses a host or a process.
func brief(file string, more ...string) []string {
	return append([]string{"launch", "--hosts", file, "--ps", "none", "--lease", lease.String(), "--grace", "2s"}, more...)
}

// again returns the flags of a launch that restarts its tasks after a failure.
func again(file string, more ...string) []string {
	return brief(file, append([]string{"--max-restarts", "2", "--restart-backoff", "200ms"}, more...)...)
}

// said fails the test for each of the words that stderr does not contain.
func said(t *testing.T, res result, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(res.stderr, w) {
			t.Errorf("nobody says %q:\n%s", w, clip(res.stderr))
		}
	}
}

// carries fails the test unless the first host's second network interface
// transfers at least this number of bytes during work.
func (b *bench) carries(least uint64, work func()) {
	b.t.Helper()
	count := func() uint64 {
		from, to, err := b.Hosts[0].SecondTraffic()
		if err != nil {
			b.t.Fatal(err)
		}
		return from + to
	}
	before := count()
	work()
	if got := count() - before; got < least {
		b.t.Errorf("eth1 carried %d bytes, want at least %d", got, least)
	}
}

// inside runs a command on host h.
func (b *bench) inside(h *testhosts.Host, args ...string) {
	b.t.Helper()
	if out, err := h.Command(b.t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		b.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// put writes a file, and creates its folder if the folder does not exist.
func put(t *testing.T, path, text string, mode fs.FileMode) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), executable.Write(path, []byte(text), mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// contains fails the test for each of the texts that output does not contain.
func contains(t *testing.T, output string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(output, text) {
			t.Errorf("%q is missing in:\n%s", text, clip(output))
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func length(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// files lists all files below a folder, without the folders themselves.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(dir, path) // path is below dir
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
