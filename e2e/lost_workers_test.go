//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// training is a job whose steps take 150 ms each until finish is called. So it
// is still training when the test acts on it, however slow the machine is.
type training struct {
	*running
	finish func()
}

// paced returns the command of a training without --steps, and a function that
// makes its remaining steps fast.
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
	return testhosts.Binary(t, "github.com/plx-run/plx/internal/test/chaos/workload")
}

// bearing launches a training on three hosts and waits until it makes steps.
// The job can continue without the third host, which has a worker and no
// server. Flags before "--" are for plx, flags after it for the program.
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

// worker returns the process of the worker on host h.
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

// A worker is killed. A detached job whose workers do not wait for each other
// continues without this worker. A job that needs all of its workers ends. The
// fault grid covers other ways to lose a worker.
func TestLostWorkersAreDoneWithout(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
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
}
