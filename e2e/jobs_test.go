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

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// jobLine is the description of one job in the output of plx jobs --json.
type jobLine struct {
	Job, Name, Program, State string
	Hosts, Tasks, Generation  int
	Code                      *int
	Seconds                   float64
}

// jobsOf runs plx jobs and returns the jobs, by id.
func (b *bench) jobsOf(args ...string) map[string]jobLine {
	b.t.Helper()
	return b.listed(b.want(0, append([]string{"jobs", "--json"}, args...)...))
}

// listed parses the output of plx jobs --json.
func (b *bench) listed(res result) map[string]jobLine {
	b.t.Helper()
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

// holder is a program that prints lines, prints "up", and then waits. It ends
// with the exit status that the test writes into a file.
type holder struct {
	path, dir string
}

func (b *bench) holder(name string) holder {
	b.t.Helper()
	dir := b.shared()
	return holder{dir: dir, path: b.script(name, `for i in 1 2 3; do echo "line $i"; done; echo "problem" >&2; echo "$HOME" > `+dir+`/home
echo up
while [ -d `+dir+` ] && [ ! -s `+dir+`/end ]; do sleep 0.1; done
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

// id waits until the job has a record on this machine, and returns the job's
// id.
func (b *bench) id(name string) string {
	b.t.Helper()
	for deadline := time.Now().Add(patience.Limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if found, err := filepath.Glob(filepath.Join(b.home, ".plx", "jobs", name+"-*", "job.json")); err == nil && len(found) == 1 {
			return filepath.Base(filepath.Dir(found[0]))
		}
	}
	b.t.Fatalf("no record of a job %s", name)
	return ""
}

// elsewhere returns the same bench as seen from another machine, which has the
// SSH keys but no records of jobs.
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

// awaitLine waits until a task has printed the given line.
func (r *running) awaitLine(task, line string) {
	r.t.Helper()
	pattern := regexp.MustCompile(`(?m)^` + task + ` +\S+ +\| ` + line + `$`)
	for deadline := time.Now().Add(patience.Limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
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

func TestStop(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	file := b.ResourceFile("h1", "h2")
	deaf := b.script("deaf", "trap '' TERM; setsid sleep 300 & echo up; exec sleep 300")
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

// nothingOf fails the test if a host still runs a process of the given job, or
// of any job if job is "". It ignores processes whose environment names
// another job, and processes that serve a plx command: one that still runs, or
// one that has just ended and whose shell on the host has not noticed it yet.
func (b *bench) nothingOf(job string) {
	b.t.Helper()
	serves := regexp.MustCompile(`^\S+ agent (logs|outputs|start|connect|step|serve)\b|^/bin/sh -c printf .*; eval "shift; \$\(printf %b "\$1"\)"`)
	for _, h := range b.on() {
		sessions := map[int]bool{}
		all := b.processes(h)
		for _, p := range all {
			sessions[p.PID] = p.Server && p.PID != 1 || slices.Contains(p.Args, "serve")
		}
		for _, p := range all {
			served := p.State == 'Z' && sessions[p.PPID] // the process has ended, and its sshd has not noticed yet
			if !p.Server && !served && (p.Name == watchdog || !serves.MatchString(strings.Join(p.Args, " "))) && (job == "" || !ofAnother(p, all, job)) {
				b.t.Errorf("host %s: left of job %s: %s", h.Name, job, p)
			}
		}
	}
}

// ofAnother reports whether the environment of a process, or of a process that
// it has started, names another job.
func ofAnother(p testhosts.Process, all []testhosts.Process, job string) bool {
	says := func(p testhosts.Process) bool {
		return slices.ContainsFunc(p.Environ, func(v string) bool {
			name, value, _ := strings.Cut(v, "=")
			return (name == "PLX_JOB" || name == "PLX_AGENT_JOB") && value != job
		})
	}
	return says(p) || slices.ContainsFunc(all, func(c testhosts.Process) bool { return c.PPID == p.PID && says(c) })
}

func (r *running) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// If a host cannot list its jobs, plx jobs names the host and fails, even if
// the other hosts can list theirs.
func TestJobsOfAHostThatFails(t *testing.T) {
	t.Parallel()
	b := local(t)
	folder := filepath.Join(b.home, ".plx", "jobs", "j", "works")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(folder, "state.json"), `{"job":"j","host":"works","folder":"works","binary":".plx/blobs/abc","tasks":{"worker:0":{}},"verdict":{"reason":"well done"}}`, 0o600)
	via := b.script("via", "[ $1 = works ] || exit 3; exec sh") + " {host}"
	for _, more := range [][]string{nil, {"--json"}} {
		res := b.want(125, append([]string{"jobs", "--via", via, "--host", "works", "--host", "fails"}, more...)...)
		contains(t, res.stdout, "well done")
		contains(t, res.stderr, "plx: host fails: look for jobs: ")
	}
}
