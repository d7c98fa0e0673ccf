//go:build long

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestJob inspects one job from several machines, while the job runs and after
// its end.
func TestJob(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2})
	file := b.ResourceFile("h1", "h2: cpu*2")
	program := b.holder("hold")
	launch := b.start("launch", "--hosts", file, "--ps", "all", "--name", "first", program.path)
	for _, task := range []string{"worker:0", "worker:1", "worker:2", "ps:0", "ps:1"} {
		launch.awaitLine(task, "up")
	}
	job := b.id("first")
	follow := b.start("logs", "-f", "--color", "always", job[:len(job)-2])
	follow.await(follow.stdout, "up")
	attached := b.elsewhere().start("attach", "--hosts", file, job)
	attached.await(attached.stderr, "Ctrl-C leaves it running")
	t.Run("while it runs", func(t *testing.T) {
		b := b.in(t)
		testLogs(b, file, job, []string{"line 1", "line 2", "line 3", "up"})
		if j := b.jobsOf()[job]; j.State != "running" || j.Name != "first" || j.Hosts != 2 || j.Tasks != 5 || j.Code != nil {
			t.Errorf("plx jobs: %+v", j)
		}
		b.want(0, "prune", "--older", "0s")
		if j := b.jobsOf()[job]; j.State != "running" {
			t.Errorf("after plx prune: %+v", j)
		}
		testElsewhere(b, file, job, "running")
	})
	program.end(t, 5)
	if res := launch.wait(); res.code != 5 {
		t.Errorf("plx launch: exit status %d\n%s", res.code, res.stderr)
	}
	t.Run("plx attach ends with the job", func(t *testing.T) {
		contains(t, attached.want(5).stdout, "last line")
	})
	t.Run("plx logs -f ends with the job", func(t *testing.T) {
		res := follow.want(0)
		contains(t, res.stdout, "last line", "\x1b[")
	})
	b.hostsGone(0)
	t.Run("after it", func(t *testing.T) {
		b := b.in(t)
		testLogs(b, file, job, []string{"line 1", "line 2", "line 3", "up", "last line"})
		if j := b.jobsOf()[job]; j.State != "failed" || j.Code == nil || *j.Code != 5 {
			t.Errorf("plx jobs: %+v", j)
		}
		b.want(0, "logs", "-f", job)
		res := b.want(2, "attach")
		contains(t, res.stderr, "no running job")
		testElsewhere(b, file, job, "failed")
	})
	t.Run("prune", func(t *testing.T) { testPrune(b.in(t), job) })
}

// testLogs prints the logs of a job with all combinations of flags.
func testLogs(b *bench, file, job string, all []string) {
	for _, c := range []struct {
		args string
		want []string // wanted lines of worker:1 on stdout
		rest bool     // true if lines of other tasks must be printed, too
	}{
		{"", all, true}, {job, all, true}, {job[:len(job)-1], all, true}, {"first", all, true},
		{"--task worker:1", all, false}, {"--task worker:1 --task ps:0 " + job, all, true},
		{"--host h2", all, true}, {"--host h1", nil, true}, {"--hosts " + file + " " + job, all, true},
		{job + " --task worker:1 --tail 2", all[len(all)-2:], false}, {"--task worker:1 --tail 0", nil, false},
		{"--since 1h --task worker:1", all, false}, {"--since 1ms --task worker:1", nil, false},
		{"--grep ^line.[12]$ --task worker:1", all[:2], false},
	} {
		res := b.want(0, append([]string{"logs"}, strings.Fields(c.args)...)...)
		if got := lines(res.stdout, "worker:1"); !slices.Equal(got, c.want) {
			b.t.Errorf("plx logs %s: worker:1 printed %q, want %q\nstderr:\n%s", c.args, got, c.want, clip(res.stderr))
		}
		if rest := strings.Count(res.stdout, "\n") > len(c.want); rest != c.rest {
			b.t.Errorf("plx logs %s: lines of other tasks: %v\n%s", c.args, rest, clip(res.stdout))
		}
	}
	res := b.want(0, "logs", "--json", "--task", "worker:2")
	var line struct{ Host, Task, Stream, Line string }
	var got []string
	for text := range strings.Lines(res.stdout) {
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Host != "h2" || line.Task != "worker:2" {
			b.t.Fatalf("%v: %s", err, text)
		}
		if line.Stream == "stdout" {
			got = append(got, line.Line)
		}
	}
	if !slices.Equal(got, all) {
		b.t.Errorf("plx logs --json: %q, want %q", got, all)
	}
	res = b.want(2, "logs", "--task", "worker:9")
	contains(b.t, res.stderr, "no task worker:9", "worker:2")
	b.want(2, "logs", "--host", "h9")
	b.want(2, "logs", "--hosts", file, "no-such-job")
}

// testElsewhere inspects the job from a machine that did not launch it.
func testElsewhere(b *bench, file, job, state string) {
	other := b.elsewhere()
	res := other.want(2, "logs", job)
	contains(b.t, res.stderr, "--hosts")
	res = other.want(0, "logs", "--hosts", file, "--task", "worker:1")
	if got := lines(res.stdout, "worker:1"); len(got) < 4 {
		b.t.Errorf("from another machine worker:1 printed %q", got)
	}
	if j := other.jobsOf("--hosts", file)[job]; j.State != state || j.Tasks != 5 || j.Hosts != 2 {
		b.t.Errorf("from another machine: %+v, want %s", j, state)
	}
}

// testPrune removes the job on all hosts, and must not remove recent files of
// the store.
func testPrune(b *bench, job string) {
	b.want(0, "prune")
	if _, there := b.jobsOf()[job]; !there {
		b.t.Error("plx prune removed a job of today")
	}
	dry := b.want(0, "prune", "--older", "0s", "--dry-run")
	contains(b.t, dry.stderr, "nothing was removed: plx prune without --dry-run removes ")
	if _, there := b.jobsOf()[job]; !there || !strings.Contains(dry.stdout, "record of job "+job) {
		b.t.Errorf("plx prune --dry-run removed the record, or did not print it:\n%s", dry.stdout)
	}
	done := b.want(0, "prune", "--older", "0s")
	if _, there := b.jobsOf()[job]; there {
		b.t.Error("plx prune --older 0s left the record")
	}
	for _, h := range b.Hosts {
		rows := regexp.MustCompile(`(?m)^`+h.Name+` +(\S.*?)  +(\S.*)$`).FindAllStringSubmatch(dry.stdout, -1)
		last := len(rows) - 1
		if last < 1 || rows[0][1] != "job "+job || rows[last][1] != "all" {
			b.t.Fatalf("plx prune --dry-run prints of %s:\n%q", h.Name, rows)
		}
		contains(b.t, done.stderr, fmt.Sprintf("host %s: removed %d old items, %s\n", h.Name, last, rows[last][2]))
	}
	for _, h := range b.Hosts {
		if _, err := os.Stat(filepath.Join(h.HomeDir, ".plx", "jobs", job)); err == nil {
			b.t.Errorf("plx prune left the job's folder on %s", h.Name)
		}
	}
	b.hostsGone(0)
}
