//go:build long

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// ways lists the ways to reach hosts. Each way creates a bench of two hosts,
// and returns the flags with which plx commands reach both hosts.
var ways = []way{
	{"SSH", func(t *testing.T) (*bench, []string) {
		b := newBench(t, testhosts.Options{Hosts: 2})
		return b, []string{"--hosts", b.ResourceFile()}
	}},
	{"a command", func(t *testing.T) (*bench, []string) {
		b := newBench(t, testhosts.Options{Hosts: 2})
		command, _ := b.enter()
		return b, []string{"--hosts", b.ResourceFile("h1: cpu nic=eth0", "h2: cpu nic=eth0"), "--via", command}
	}},
}

type way struct {
	name string
	open func(t *testing.T) (b *bench, reach []string)
}

// suite lists checks of jobs that must work with every way to reach hosts.
// launch is the beginning of a command line that launches, and reach has the
// flags of other commands.
var suite = []struct {
	name string
	test func(b *bench, reach []string)
}{
	{"launch", trainsOn},
	{"fail", failsOn},
	{"restart", restartsOn},
	{"logs and stop", stopsOn},
	{"detach", detachesOn},
	{"orphans", orphansOn},
}

// TestWays runs all checks of the suite with each way to reach hosts.
func TestWays(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			b, reach := w.open(t)
			for _, c := range suite {
				t.Run(c.name, func(t *testing.T) {
					b := b.in(t)
					c.test(b, reach)
					b.hostsGone(patience.Limit)
				})
			}
		})
	}
}

func launchOn(reach []string, more ...string) []string {
	return slices.Concat([]string{"launch"}, reach, []string{"--lease", lease.String(), "--grace", "2s"}, more)
}

// trainsOn trains a model, which must end with the same weights as in one
// process.
func trainsOn(b *bench, reach []string) {
	linear := testhosts.Binary(b.t, "github.com/plx-run/plx/examples/linear")
	flags := []string{"--virtual-workers=2", "--digest"}
	alone := b.digest(nil, linear, flags...)
	res := b.want(0, launchOn(reach, append([]string{linear}, flags...)...)...)
	if got := digestLine.FindString(res.stdout); got != alone {
		b.t.Errorf("digest %q, in one process %q", got, alone)
	}
}

// failsOn has a worker that fails after much output. plx must print all lines.
func failsOn(b *bench, reach []string) {
	res := b.want(3, launchOn(reach, "--ps", "none", b.script("talk", `
seq 20000
echo "on $(hostname)"
[ "$RANK" = 0 ] || { sleep 0.2; exit 3; }
exec sleep 300`))...)
	for i, h := range b.on() {
		got := lines(res.stdout, fmt.Sprintf("worker:%d", i))
		if len(got) != 20001 || got[20000] != "on "+h.Name {
			b.t.Errorf("worker:%d printed %d lines", i, len(got))
		}
	}
	b.says(res, "job", "worker:1 on "+b.on()[1].Name+" exited with status 3")
}

// restartsOn kills a task, and then both processes of an agent whose tasks
// ignore signals.
func restartsOn(b *bench, reach []string) {
	// Without its agent, plx cannot recognise a process that has left its
	// session and cleared its environment. So this child keeps its
	// environment.
	l := b.lives("2", strings.Replace(stubborn, "env -i ", "", 1))
	r := b.start(launchOn(reach, "--ps", "none", "--max-restarts", "2", "--restart-backoff", "200ms", l.path)...)
	r.up("worker:0", "worker:1")
	b.kill(b.process(b.on()[0], "/bin/bash /root/.plx/blobs/"))
	r.says("worker:0", "generation 1, rank 0 of 2, first 2")
	var agent []testhosts.Process
	for _, name := range []string{watchdog, "plx agent supervisor"} {
		agent = append(agent, b.process(b.on()[1], name))
	}
	for _, p := range agent { // stop both processes first, so that neither can react to the end of the other
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, p := range agent {
		b.kill(p)
	}
	r.says("worker:1", "generation 2, rank 1 of 2, first 2")
	b.nothingOld(b.on()...)
	l.end(b.t)
	b.says(r.want(0), "job", "done, after 2 restarts")
}

// stopsOn reads the logs of a job on this machine and on another one, and
// stops the job.
func stopsOn(b *bench, reach []string) {
	r := b.start(launchOn(reach, "--ps", "none", "--name", "stopped", b.script("task", stubborn))...)
	r.up("worker:0", "worker:1")
	job := b.id("stopped")
	for who, res := range map[string]result{
		"here":      b.want(0, "logs", job),
		"elsewhere": b.elsewhere().want(0, append(append([]string{"logs"}, reach...), job)...),
	} {
		for _, task := range []string{"worker:0", "worker:1"} {
			if got := lines(res.stdout, task); !slices.Equal(got, []string{"up"}) {
				b.t.Errorf("plx logs from %s: %s printed %q", who, task, got)
			}
		}
	}
	b.want(0, "stop", job)
	b.nothingOf(job)
	b.says(r.want(143), "job", "stopped by plx stop")
}

// detachesOn detaches from a job, finds it on this machine and on another one,
// and stops it from the other machine.
func detachesOn(b *bench, reach []string) {
	job := b.detach(append(slices.Clone(reach), "--ps", "none", b.script("stays", "echo up; exec sleep 300"))...)
	follow := b.start("logs", "-f", job)
	follow.awaitLine("worker:0", "up")
	follow.awaitLine("worker:1", "up")
	attached := b.start("attach", job)
	attached.awaitLine("worker:1", "up")
	elsewhere := b.elsewhere()
	for who, j := range map[string]jobLine{"here": b.jobsOf()[job], "elsewhere": elsewhere.jobsOf(reach...)[job]} {
		if j.State != "running" || j.Hosts != 2 || j.Tasks != 2 {
			b.t.Errorf("plx jobs from %s: %+v", who, j)
		}
	}
	elsewhere.want(0, append(append([]string{"stop"}, reach...), job)...)
	attached.want(143)
	follow.want(0)
	b.nothingOf(job) // not earlier, because both plx processes read the job's logs on the hosts
}

// orphansOn kills a launcher. Its tasks ignore signals, but must be gone when
// their lease expires.
func orphansOn(b *bench, reach []string) {
	r := b.start(launchOn(reach, "--ps", "none", b.script("task", strings.Replace(stubborn, "env -i ", "", 1)))...)
	r.up("worker:0", "worker:1")
	for _, h := range b.on() {
		b.process(h, "sleep 1001")
		b.process(h, "sleep 1002")
	}
	r.signal(syscall.SIGKILL)
}
