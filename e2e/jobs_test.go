package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/testhosts"
)

// jobLine is what plx jobs --json tells of a job.
type jobLine struct {
	Job, Name, Program, State string
	Hosts, Tasks, Generation  int
	Code                      *int
	Seconds                   float64
}

// jobsOf lists the jobs that plx knows of, by id.
func (b *bench) jobsOf(args ...string) map[string]jobLine {
	b.t.Helper()
	res := b.want(0, append([]string{"jobs", "--json"}, args...)...)
	var all []jobLine
	if err := json.Unmarshal([]byte(res.stdout), &all); err != nil {
		b.t.Fatalf("%v\n%s", err, res.stdout)
	}
	byID := map[string]jobLine{}
	for _, j := range all {
		byID[j.Job] = j
	}
	return byID
}

// holder is a program that prints, tells that it is up, and ends with the
// status that is written into a file.
type holder struct {
	path, dir string
}

func (b *bench) holder(name string) holder {
	b.t.Helper()
	dir := b.shared()
	return holder{dir: dir, path: b.script(name, `for i in 1 2 3; do echo "line $i"; done; echo "problem" >&2; echo "$HOME" > `+dir+`/home
echo up
while [ -d `+dir+` ] && [ ! -s `+dir+`/end ]; do sleep 0.03; done
echo "last line"
[ "$PLX_RANK" = 1 ] && exit $(cat `+dir+`/end); exit 0`)}
}

func (h holder) end(t *testing.T, code int) {
	t.Helper()
	put(t, filepath.Join(h.dir, "end.new"), fmt.Sprint(code), 0o644)
	if err := os.Rename(filepath.Join(h.dir, "end.new"), filepath.Join(h.dir, "end")); err != nil {
		t.Fatal(err)
	}
}

// id waits for the job's record and returns its id.
func (b *bench) id(name string) string {
	b.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if found, err := filepath.Glob(filepath.Join(b.home, ".plx", "jobs", name+"-*", "job.json")); err == nil && len(found) == 1 {
			return filepath.Base(filepath.Dir(found[0]))
		}
	}
	b.t.Fatalf("no record of a job %s", name)
	return ""
}

// elsewhere is the same bench on another machine: it has the keys and no
// record of any job.
func (b *bench) elsewhere() *bench {
	b.t.Helper()
	if b.allocation != nil {
		return b.allocation.login.in(b.t)
	}
	other := *b
	other.home = b.t.TempDir()
	if err := os.CopyFS(filepath.Join(other.home, ".ssh"), os.DirFS(filepath.Join(b.home, ".ssh"))); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(other.home, ".ssh", "id_ed25519"), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return &other
}

// TestJob looks at one job from everywhere, while it runs and after.
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

// awaitLine waits until a task has printed a line.
func (r *running) awaitLine(task, line string) {
	r.t.Helper()
	pattern := regexp.MustCompile(`(?m)^` + task + ` +\S+ +\| ` + line + `$`)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if pattern.MatchString(r.stdout.String()) {
			return
		}
		select {
		case <-r.done:
			r.t.Fatalf("plx %q ended before %s printed %q\nstdout:\n%s\nstderr:\n%s", r.args, task, line, clip(r.stdout.String()), clip(r.stderr.String()))
		default:
		}
	}
	r.t.Fatalf("%s never printed %q\nstdout:\n%s\nstderr:\n%s", task, line, clip(r.stdout.String()), clip(r.stderr.String()))
}

// testLogs asks for the lines of a job in every way.
func testLogs(b *bench, file, job string, all []string) {
	for _, c := range []struct {
		args string
		want []string // lines of worker:1 on stdout
		rest bool     // whether other tasks' lines are there too
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

// testElsewhere asks from a machine that did not launch the job.
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

// testPrune removes the job everywhere, and no blob that is young.
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
		contains(b.t, dry.stdout, "jobs/"+job+"/"+h.Name)
		contains(b.t, done.stderr, fmt.Sprintf("host %s: removed %d old items", h.Name, strings.Count("\n"+dry.stdout, "\n"+h.Name+" ")))
	}
	for _, h := range b.Hosts {
		if _, err := os.Stat(filepath.Join(h.HomeDir, ".plx", "jobs", job)); err == nil {
			b.t.Errorf("plx prune left the job's folder on %s", h.Name)
		}
	}
	b.hostsGone(0)
}

func TestStop(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	file := b.ResourceFile("h1", "h2")
	deaf := b.script("deaf", "trap '' TERM; setsid sleep 300 & echo up; while :; do sleep 0.05; done")
	t.Run("an attached job", func(t *testing.T) {
		b := b.in(t)
		launch := b.start("launch", "--hosts", file, b.script("stubborn", stubborn))
		launch.awaitLine("worker:1", "up")
		for _, h := range b.Hosts {
			b.process(h, "sleep 1002")
		}
		begun := time.Now()
		b.want(0, "stop", "--grace", "1s")
		b.nothingOf("")
		if took := time.Since(begun); took < time.Second {
			t.Errorf("the tasks had %v, less than their grace", took)
		}
		res := launch.want(143)
		contains(t, res.stderr, "stopped by plx stop")
		b.hostsGone(0)
		b.want(2, "stop")
	})
	t.Run("from another machine", func(t *testing.T) {
		b := b.in(t)
		launch := b.start("launch", "--hosts", file, deaf)
		launch.awaitLine("worker:0", "up")
		launch.awaitLine("worker:1", "up")
		b.elsewhere().want(0, "stop", "--hosts", file, "--grace", "0s")
		b.nothingOf("")
		launch.want(143)
		b.hostsGone(0)
	})
	t.Run("Ctrl-C twice", func(t *testing.T) {
		b := b.in(t)
		launch := b.start("launch", "--hosts", file, "--grace", "100s", deaf)
		launch.awaitLine("worker:0", "up")
		launch.signal(syscall.SIGINT)
		launch.await(launch.stderr, "a second signal kills")
		launch.signal(syscall.SIGINT)
		launch.want(130)
		b.hostsGone(0)
	})
}

// nothingOf fails the test if anything of a job is left on a host, or of any
// job: any process that is not another job's and serves no plx that is still
// there, whatever its environment says or hides.
func (b *bench) nothingOf(job string) {
	b.t.Helper()
	serves := regexp.MustCompile(`^\S+ agent (logs|start|connect|step|serve)\b`)
	for _, h := range b.on() {
		sessions := map[int]bool{}
		all := b.processes(h)
		for _, p := range all {
			sessions[p.PID] = p.Server && p.PID != 1
		}
		for _, p := range all {
			served := p.State == 'Z' && sessions[p.PPID] // it has ended, as its sshd is about to see
			if !p.Server && !served && !serves.MatchString(strings.Join(p.Args, " ")) && (job == "" || !ofAnother(p, job)) {
				b.t.Errorf("host %s: left of job %s: %s", h.Name, job, p)
			}
		}
	}
}

// ofAnother reports whether a process says that it is of another job.
func ofAnother(p testhosts.Process, job string) bool {
	return slices.ContainsFunc(p.Environ, func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		return (name == "PLX_JOB" || name == "PLX_AGENT_JOB") && value != job
	})
}

func (r *running) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}
