//go:build long

package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/patience"
	"github.com/plx-run/plx/internal/testhosts"
)

// TestDetachedRestarts has jobs recover that no launcher drives any more.
func TestDetachedRestarts(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	run := func(name string, test func(b *bench)) {
		t.Run(name, func(t *testing.T) { test(b.in(t)) })
	}
	run("a killed task", detachedTaskKilled)
	run("too few workers are left", detachedTooFew)
	b.Hosts[2].PowerOn()
	run("without the host that drives", detachedDriverLost)
}

func TestDetachedWithoutAHost(t *testing.T) {
	t.Parallel()
	detachedWithoutAHost(newBench(t, testhosts.Options{Hosts: 3}))
}

// detachedJob launches a detached job and follows it.
func (b *bench) detachedJob(l lives, more ...string) (job string, follow *running) {
	b.t.Helper()
	args := again(b.ResourceFile(), append(more, l.path)...)
	job = b.detach(args[1:]...)
	return job, b.start("attach", job)
}

func detachedTaskKilled(b *bench) {
	l := b.lives("1", "echo up; exec sleep 77")
	job, follow := b.detachedJob(l)
	follow.up("worker:0", "worker:1", "worker:2")
	b.kill(b.process(b.Hosts[1], "sleep 77"))
	follow.says("worker:1", "generation 1, rank 1 of 3, first 3")
	j := b.jobsOf()[job]
	if j.State != "running" || j.Generation != 1 {
		b.t.Errorf("plx jobs: %+v", j)
	}
	if res := b.want(0, "jobs"); !strings.Contains(res.stdout, "running, generation 1") {
		b.t.Errorf("plx jobs:\n%s", res.stdout)
	}
	other := b.start("attach", job)
	other.await(other.stderr, "attached to job "+job+", generation 1")
	other.signal(syscall.SIGINT)
	other.want(130)
	l.end(b.t)
	res := follow.want(0)
	b.says(res, "job", "done, after 1 restart")
	b.hostsGone(patience.Limit)
	if j := b.jobsOf()[job]; j.State != "done" || j.Generation != 1 {
		b.t.Errorf("plx jobs: %+v", j)
	}
}

func detachedWithoutAHost(b *bench) {
	l := b.lives("1", stubborn)
	job, follow := b.detachedJob(l, "--min-workers", "2")
	follow.up("worker:0", "worker:1", "worker:2")
	b.Hosts[2].PowerOff()
	off := time.Now()
	follow.says("worker:1", "generation 1, rank 1 of 2, first 3")
	b.took("to go on without the host", off, 2*lease+patience.Limit)
	b.nothingOld(b.Hosts[0], b.Hosts[1])
	l.end(b.t)
	res := follow.want(0)
	b.says(res, "job", "done, after 1 restart")
	b.gone(patience.Limit, b.Hosts[0], b.Hosts[1])
	if j := b.jobsOf()[job]; j.State != "done" {
		b.t.Errorf("plx jobs: %+v", j)
	}
}

// detachedTooFew loses a host without which too few workers are left. Nobody
// can start an agent there, so the job ends.
func detachedTooFew(b *bench) {
	l := b.lives("1", stubborn)
	job, follow := b.detachedJob(l)
	follow.up("worker:0", "worker:1", "worker:2")
	b.Hosts[2].PowerOff()
	off := time.Now()
	b.gone(lease+patience.Limit, b.Hosts[0], b.Hosts[1])
	b.took("to end", off, lease+patience.Limit)
	res := follow.want(125)
	b.says(res, "job", "host h3: not heard for 8s", "2 of 3 workers are left, and without --min-workers all are needed")
	if j := b.jobsOf()[job]; j.State != "failed" {
		b.t.Errorf("plx jobs: %+v", j)
	}
}

// detachedDriverLost loses the host whose agent drives the job: the others
// end by their lease and say why.
func detachedDriverLost(b *bench) {
	l := b.lives("1", stubborn)
	_, follow := b.detachedJob(l, "--min-workers", "1")
	follow.up("worker:0", "worker:1", "worker:2")
	b.Hosts[0].PowerOff()
	off := time.Now()
	b.gone(lease+patience.Limit, b.Hosts[1], b.Hosts[2])
	b.took("until nothing was left", off, lease+patience.Limit)
	follow.signal(syscall.SIGINT)
	follow.want(130)
	for _, h := range []string{"h2", "h3"} {
		res := b.elsewhere().run("jobs", "--host", h)
		if !strings.Contains(res.stdout, "the host that drives the job was not heard for 8s") {
			b.t.Errorf("plx jobs --host %s:\n%s%s", h, res.stdout, res.stderr)
		}
	}
	b.Hosts[0].PowerOn()
	b.hostsGone(patience.Limit)
}
