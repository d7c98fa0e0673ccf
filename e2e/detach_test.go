package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// detach launches a detached job, checks that plx prints only the job's id to
// stdout, and returns the id.
func (b *bench) detach(args ...string) string {
	b.t.Helper()
	res := b.want(0, append([]string{"launch", "--detach"}, args...)...)
	id, rest, ended := strings.Cut(res.stdout, "\n")
	if !ended || rest != "" || id == "" || strings.ContainsAny(id, " \t") {
		b.t.Fatalf("plx launch --detach printed %q, want the id alone\nstderr:\n%s", res.stdout, res.stderr)
	}
	return id
}

func TestDetached(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	file := b.ResourceFile("h1", "h2")
	t.Run("attach, leave, attach again", func(t *testing.T) { testAttach(b.in(t), file) })
	t.Run("stop", func(t *testing.T) {
		b := b.in(t)
		job := b.detach("--hosts", file, "--ps", "all", b.script("stubborn", stubborn))
		other := b.detach("--hosts", file, b.script("other", "echo up; exec sleep 300"))
		attached := b.start("attach", other)
		attached.awaitLine("worker:0", "up")
		for _, h := range b.Hosts {
			b.process(h, "sleep 1002") // the command line of this process does not name its job
		}
		b.want(0, "stop", "--grace", "1s", job)
		b.nothingOf(job)
		if jobs := b.jobsOf(); jobs[job].State != "stopped" || *jobs[job].Code != 143 || jobs[other].State != "running" || jobs[job].Seconds <= 0 || jobs[other].Seconds <= 0 {
			t.Errorf("plx jobs: %+v", jobs)
		}
		b.elsewhere().want(0, "stop", "--hosts", file)
		attached.want(143)
		b.hostsGone(0)
	})
	t.Run("the program is not found", func(t *testing.T) {
		b := b.in(t)
		res := b.want(127, "launch", "--detach", "--hosts", file, "no-such-program")
		contains(t, res.stderr, "no-such-program")
		if res.stdout != "" {
			t.Errorf("stdout: %q", res.stdout)
		}
		b.hostsGone(patience.Limit)
	})
	t.Run("nothing to show", func(t *testing.T) {
		b.in(t).want(2, "launch", "--detach", "--hosts", file, "--log-dir", t.TempDir(), "true")
	})
	t.Run("it ends before plx returns", func(t *testing.T) {
		b := b.in(t)
		b.detach("--hosts", file, "true")
		b.hostsGone(patience.Limit)
		// All tasks have started, and then one fails. plx may have noticed
		// both events or only the first.
		res := b.run("launch", "--detach", "--hosts", file, "--name", "short", b.script("s", "exit 3"))
		b.hostsGone(patience.Limit)
		if code := b.jobsOf()[b.id("short")].Code; (res.code != 0 && res.code != 3) || code == nil || *code != 3 {
			t.Errorf("plx launch --detach: exit status %d; the job's: %v\n%s", res.code, code, res.stderr)
		}
	})
	t.Run("a host that cannot be asked", func(t *testing.T) {
		other := b.in(t).elsewhere()
		before := other.jobsOf("--hosts", file)
		b.Hosts[1].WrongHostKey()
		res := other.want(125, "jobs", "--json", "--hosts", file)
		if after := other.listed(res); len(before) == 0 || len(after) != len(before) {
			t.Errorf("plx jobs lists %d jobs, %d when one host cannot be asked", len(before), len(after))
		}
		contains(t, res.stderr, "plx: host h2: look for jobs: ")
	})
}

func testAttach(b *bench, file string) {
	program := b.holder("train")
	job := b.detach("--hosts", file, "--ps", "all", "--lease", "5s", "--name", "det", program.path)
	if j := b.jobsOf()[job]; j.State != "running" || j.Name != "det" || j.Tasks != 4 {
		b.t.Errorf("plx jobs: %+v", j)
	}
	first := b.start("attach", "det")
	first.awaitLine("worker:0", "up")
	first.awaitLine("worker:1", "up")
	first.await(first.stderr, "problem")
	first.signal(syscall.SIGINT)
	first.want(130)
	if j := b.jobsOf()[job]; j.State != "running" {
		b.t.Errorf("after Ctrl-C on plx attach: %+v", j)
	}
	second := b.elsewhere().start("attach", "--hosts", file)
	second.awaitLine("worker:1", "up")
	program.end(b.t, 0)
	res := second.want(0)
	if got := lines(res.stdout, "worker:1"); len(got) == 0 || got[len(got)-1] != "last line" {
		b.t.Errorf("worker:1: %q", got)
	}
	b.hostsGone(patience.Limit)
	if j := b.jobsOf()[job]; j.State != "done" || j.Code == nil || *j.Code != 0 {
		b.t.Errorf("plx jobs: %+v", j)
	}
	b.want(2, "stop")
}
