//go:build long

package e2e

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// Without a job's name, plx logs uses the newest job, plx attach the newest
// running job, and plx stop the only running job. The test checks this on the
// launching machine and on another one.
func TestNewest(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	file := b.ResourceFile()
	here, away := asker{b, nil}, asker{b.elsewhere(), []string{"--hosts", file}}
	stays := b.script("stays", "echo $PLX_JOB\nexec sleep 300")
	older := b.detach("--hosts", file, "--ps", "none", stays)
	newer := b.detach("--hosts", file, "--ps", "none", stays)
	var follow []*running
	for _, job := range []string{older, newer} {
		f := b.start("logs", "-f", job)
		f.awaitLine("worker:0", job)
		follow = append(follow, f)
	}
	here.logs(newer)
	away.logs(newer)
	brief := b.detach("--hosts", file, "--ps", "none", b.script("brief", "echo $PLX_JOB"))
	for deadline := time.Now().Add(patience.Limit); away.jobsOf(away.reach...)[brief].State != "done"; {
		if time.Now().After(deadline) {
			t.Fatalf("job %s never ended", brief)
		}
	}
	here.attach(newer) // this machine does not know yet that the short job has ended
	here.logs(brief)
	away.logs(brief)
	away.attach(newer)
	here.refuseStop(older, newer)
	away.refuseStop(older, newer)
	b.want(0, "stop", newer)
	if jobs := b.jobsOf(); jobs[newer].State != "stopped" || jobs[older].State != "running" {
		t.Errorf("plx jobs: %+v", jobs)
	}
	here.logs(brief)
	here.attach(older)
	away.stop(older)
	for _, f := range follow {
		f.want(0)
	}
	b.hostsGone(0)
	b.want(2, "stop")
}

// asker is a machine that runs commands about jobs without naming a job.
type asker struct {
	*bench
	reach []string // flags by which this machine finds jobs
}

func (a asker) logs(job string) {
	a.t.Helper()
	res := a.want(0, append([]string{"logs", "--task", "worker:0"}, a.reach...)...)
	if got := lines(res.stdout, "worker:0"); !slices.Equal(got, []string{job}) {
		a.t.Errorf("plx logs %q: worker:0 printed %q, want those of job %s", a.reach, got, job)
	}
}

func (a asker) attach(job string) {
	a.t.Helper()
	r := a.start(append([]string{"attach"}, a.reach...)...)
	r.await(r.stderr, "attached to job ")
	r.signal(syscall.SIGINT)
	a.says(r.want(130), "attached to job "+job+":")
}

// refuseStop checks that plx stop without a name ends none of several running
// jobs.
func (a asker) refuseStop(running ...string) {
	a.t.Helper()
	contains(a.t, a.want(2, append([]string{"stop"}, a.reach...)...).stderr, append(running, "without the name of a job")...)
}

func (a asker) stop(job string) {
	a.t.Helper()
	a.says(a.want(0, append([]string{"stop"}, a.reach...)...), "job "+job+": stopped on 2 hosts")
}
