package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plx-run/plx/internal/testhosts"
)

// Programs for faults to meet. Each prints "up" once it is ready.
const (
	// patient works until it is told to end, and then ends.
	patient = "echo up\nwhile :; do sleep 0.2; done\n"

	// stubborn ignores what asks it to end, and so do two children that have
	// left its session and lost their parent; one has no environment either.
	stubborn = `trap '' TERM HUP INT
(setsid bash -c 'trap "" TERM; exec sleep 1001' </dev/null >/dev/null 2>&1 &)
(env -i setsid bash -c 'trap "" TERM; exec sleep 1002' </dev/null >/dev/null 2>&1 &)
echo up
while :; do sleep 0.2; done
`
)

// up waits until each of the tasks has printed "up".
func (r *running) up(tasks ...string) {
	r.t.Helper()
	r.until("tasks are up", func() bool {
		out := r.stdout.String()
		return !slices.ContainsFunc(tasks, func(task string) bool { return !slices.Contains(lines(out, task), "up") })
	})
}

// until waits for a condition on what plx wrote.
func (r *running) until(what string, met func() bool) {
	r.t.Helper()
	limit := time.After(patience)
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

// process waits for a process whose command line ends with args.
func (b *bench) process(h *testhosts.Host, args ...string) testhosts.Process {
	b.t.Helper()
	want := strings.Join(args, " ")
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		all := b.processes(h)
		for _, p := range all {
			if strings.Contains(strings.Join(p.Args, " "), want) {
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

// isSlurm reports whether a process is one of Slurm's own.
func isSlurm(p testhosts.Process) bool {
	return slices.Contains([]string{"slurmd", "slurmctld", "slurmscriptd", "slurmstepd", "munged"}, p.Name)
}

// awaitIdle waits until a node runs nothing but its servers.
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

// kill kills a process of a host that must be there.
func (b *bench) kill(p testhosts.Process) {
	b.t.Helper()
	if err := p.Signal(syscall.SIGKILL); err != nil {
		b.t.Fatalf("%v: %v", p, err)
	}
}

// gone fails the test unless nothing of plx or its tasks is left on the given
// hosts within limit.
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

// took fails the test when it is later than limit after start.
func (b *bench) took(what string, start time.Time, limit time.Duration) {
	b.t.Helper()
	took := time.Since(start)
	b.t.Logf("%s: %.1fs", what, took.Seconds())
	if took > limit {
		b.t.Errorf("%s took %v, more than %v", what, took, limit)
	}
}

// says fails the test unless one line of plx's own holds all words.
func (b *bench) says(res result, words ...string) {
	b.t.Helper()
	for line := range strings.Lines(res.stderr) {
		if strings.HasPrefix(line, "plx: ") && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return
		}
	}
	b.t.Errorf("no line of plx says %q\nstderr:\n%s", words, clip(res.stderr))
}

// waited are the lines of plx about work that takes longer than 3 s.
var waited = regexp.MustCompile(`^plx: (\w.*: \d+ of \d+ |sending.*: (nothing yet|\d+% of )|(reading|hashing|building|preparing|packing|starting|installing|importing|waiting) )`)

// brief fails the test if a successful launch has printed more than six lines of plx's
// own. On a slow machine those about waiting are extra.
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

// spool is where a host keeps a stream of the newest job there.
func (b *bench) spool(h *testhosts.Host, file string) string {
	b.t.Helper()
	found, err := filepath.Glob(filepath.Join(h.HomeDir, ".plx", "jobs", "*", "*", "logs", file))
	if err != nil || len(found) != 1 {
		b.t.Fatalf("host %s: spools %q: %v, %v", h.Name, file, found, err)
	}
	return found[0]
}

// exists reports whether there is such a file.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// appear waits until the files are there.
func (b *bench) appear(paths ...string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); slices.ContainsFunc(paths, func(p string) bool { return !exists(p) }); {
		if time.Now().After(deadline) {
			b.t.Fatalf("not all of %q appeared", paths)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
