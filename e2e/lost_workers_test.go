//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/patience"
	"github.com/plx-run/plx/internal/testhosts"
)

// training is a job whose steps take 150 ms until finish is called: what a test does
// to it happens while it trains, however slow the machine is.
type training struct {
	*running
	finish func()
}

// paced returns the command of a training, without --steps, and its finish.
func (b *bench) paced(flags ...string) (command []string, finish func()) {
	b.t.Helper()
	file := filepath.Join(b.shared(), "finish")
	return append([]string{workload(b.t), "--pace=150ms", "--pace-until=" + file}, flags...), func() {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			b.t.Error(err)
		}
	}
}

func workload(t testing.TB) string {
	return testhosts.Binary(t, "github.com/plx-run/plx/internal/chaos/workload")
}

// bearing launches a training on three hosts, of which the third has a worker
// and no server, that can do without it, and waits until it is under way. The
// flags before "--" are plx's, those after it the program's.
func (b *bench) bearing(sync string, more ...string) training {
	b.t.Helper()
	plx, own, _ := strings.Cut(strings.Join(more, " "), "-- ")
	command, finish := b.paced("--sync", sync, "--steps", "200", "--batch", "18", "--clip", "0")
	r := b.start(slices.Concat([]string{"launch", "--hosts", b.ResourceFile(), "--ps", "h1,h2", "--lease", lease.String(), "--grace", "2s",
		"--freeze-timeout", "4s"}, strings.Fields(plx), command, strings.Fields(own))...)
	if !strings.Contains(plx, "--detach") {
		r.awaitLine("worker:0", `.*step [1-9].*`)
	}
	return training{r, finish}
}

// worker is the process of the worker on a host.
func (b *bench) worker(h *testhosts.Host) testhosts.Process {
	b.t.Helper()
	for _, p := range b.processes(h) {
		if slices.Contains(p.Environ, "PLX_ROLE=worker") {
			return p
		}
	}
	b.t.Fatalf("host %s runs no worker", h.Name)
	panic("unreachable")
}

// without wants a job to be done, by its chief to the last step, without one of
// its workers, and to say so.
func (b *bench) without(r training, why ...string) result {
	b.t.Helper()
	r.await(r.stderr, "; the job goes on without ")
	r.finish()
	res := r.want(0)
	b.says(res, append(why, "; the job goes on without ")...)
	b.says(res, "job", "done, without 1 of 3 workers")
	if !regexp.MustCompile(`(?m)^worker:0 h1 \| generation 0 \| step 19\d `).MatchString(res.stdout) {
		b.t.Errorf("the chief has not made all its steps:\n%s", clip(res.stdout))
	}
	return res
}

// A worker that nobody waits for is killed, or freezes: the others make all
// their steps and the job ends well, with a notice that says who was lost and
// where. The same with a whole host.
func TestLostWorkersAreDoneWithout(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	for _, sync := range []string{"async", "ssp:3", "backup:1"} {
		t.Run(sync+" killed", func(t *testing.T) {
			b := b.in(t)
			r := b.bearing(sync)
			b.kill(b.worker(b.Hosts[2]))
			b.without(r, "worker:2 on h3 was ended by signal 9 (killed)")
			b.hostsGone(0)
		})
		t.Run(sync+" frozen", func(t *testing.T) {
			b := b.in(t)
			r := b.bearing(sync)
			if err := b.worker(b.Hosts[2]).Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			b.without(r, "worker:2 on h3 failed: it froze: no heartbeat for 4s")
			b.hostsGone(0)
		})
	}
	t.Run("checkpoints", func(t *testing.T) {
		b := b.in(t)
		r := b.bearing("async", "-v -- --ckpt-dir=. --ckpt-every-steps=20")
		r.saves(1)
		b.kill(b.worker(b.Hosts[2]))
		res := b.without(r, "worker:2 on h3 was ended by signal 9 (killed)")
		if !strings.Contains(res.stderr, "checkpoint of step 200: ") || strings.Count(res.stderr, "has failed") > 1 {
			t.Errorf("stderr:\n%s", clip(res.stderr))
		}
		b.hostsGone(0)
	})
	t.Run("detached", func(t *testing.T) {
		b := b.in(t)
		launch := b.bearing("async", "--detach --name left")
		launch.want(0)
		job := b.id("left")
		follow := b.start("attach", job)
		follow.awaitLine("worker:0", `.*step [1-9].*`)
		b.kill(b.worker(b.Hosts[2]))
		launch.finish()
		b.says(follow.want(0), "job", "done, without 1 of 3 workers")
		b.hostsGone(patience.Limit)
		if j := b.jobsOf()[job]; j.State != "done" || j.Code == nil || *j.Code != 0 {
			t.Errorf("plx jobs: %+v", j)
		}
	})
	t.Run("too few are left", func(t *testing.T) {
		b := b.in(t)
		r := b.bearing("async", "--min-workers", "3")
		b.kill(b.worker(b.Hosts[2]))
		b.says(r.want(137), "job", "worker:2 on h3 was ended by signal 9 (killed); 2 of 3 workers are left, at least 3 are needed (--min-workers)")
		b.hostsGone(0)
	})
	t.Run("the chief", func(t *testing.T) {
		b := b.in(t)
		r := b.bearing("async")
		b.kill(b.worker(b.Hosts[0]))
		res := r.want(137)
		b.says(res, "job", "worker:0 on h1 was ended by signal 9 (killed)")
		if strings.Contains(res.stderr, "goes on without") {
			t.Errorf("stderr:\n%s", clip(res.stderr))
		}
		b.hostsGone(0)
	})
	t.Run("a stop is no loss", func(t *testing.T) {
		b := b.in(t)
		r := b.bearing("async")
		r.signal(syscall.SIGINT)
		if res := r.want(130); strings.Contains(res.stderr, "goes on without") {
			t.Errorf("stderr:\n%s", clip(res.stderr))
		}
		b.hostsGone(0)
	})
	t.Run("a host", func(t *testing.T) {
		b := b.in(t)
		r := b.bearing("async")
		b.Hosts[2].PowerOff()
		off := time.Now()
		b.without(r, "host h3: not heard for 8s")
		b.took("to end", off, 2*lease+patience.Limit)
		b.gone(0, b.Hosts[0], b.Hosts[1])
	})
}
