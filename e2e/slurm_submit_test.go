//go:build long

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/testslurm"
)

// submit runs plx launch --slurm on the login node, in the home directory.
func (b *slurmBench) submit(args ...string) *running {
	b.t.Helper()
	return b.submitFrom("$HOME", args...)
}

// submitFrom runs plx launch --slurm on the login node, in folder dir.
func (b *slurmBench) submitFrom(dir string, args ...string) *running {
	b.t.Helper()
	b.t.Cleanup(func() { b.slurm.Run("scancel", "--user=root") }) // cancels jobs that a failed test has left in the queue
	return b.login("sh", append([]string{"-c", "cd " + dir + ` && exec "$0" launch --slurm --ps none "$@"`, b.plx}, args...)...)
}

// jobOfSlurm returns the Slurm job id that a submission has printed.
func (r *running) jobOfSlurm() string {
	r.t.Helper()
	r.await(r.stderr, " of Slurm\n")
	_, after, _ := strings.Cut(r.stderr.String(), "submitted, as job ")
	id, _, _ := strings.Cut(after, " ")
	return id
}

// occupy assigns all nodes to another job. Further jobs stay pending until the
// test calls free.
func (b *slurmBench) occupy(flags string) (free func()) {
	b.t.Helper()
	id, _ := b.sbatch("-N2 --exclusive --job-name=other "+flags, "exec sleep 600\n")
	b.slurm.AwaitJob(id, "RUNNING")
	free = sync.OnceFunc(func() { b.slurm.Run("scancel", id) })
	b.t.Cleanup(free)
	return free
}

// ownLines returns the lines that plx itself printed, without those of tasks.
func (r result) ownLines() (own []string) {
	for line := range strings.Lines(r.stderr) {
		if text, found := strings.CutPrefix(strings.TrimSpace(line), "plx: "); found {
			own = append(own, text)
		}
	}
	return own
}

// lastLine fails the test unless the last line of plx contains the text, and
// no earlier line does.
func (r result) lastLine(t *testing.T, text string) {
	t.Helper()
	own := r.ownLines()
	if len(own) == 0 || !strings.Contains(own[len(own)-1], text) || strings.Contains(strings.Join(own[:len(own)-1], "\n"), text) {
		t.Errorf("plx's last line alone is to have %q, it printed:\n%s", text, r.stderr)
	}
}

// TestSlurmSubmits submits jobs to Slurm by plx on the login node.
func TestSlurmSubmits(t *testing.T) {
	t.Parallel()
	b := newSlurmBench(t, testslurm.Options{Nodes: 2})
	t.Run("attached", func(t *testing.T) { submitsAttached(b.in(t)) })
	t.Run("pending", func(t *testing.T) { followsPending(b.in(t)) })
	t.Run("ended while pending", func(t *testing.T) { endsPending(b.in(t)) })
	t.Run("mistakes", func(t *testing.T) { refusesSubmissions(b.in(t)) })
	t.Run("nothing is shared", func(t *testing.T) {
		b := b.in(t)
		res := b.submitFrom("/tmp && mkdir own && cd own", "true").want(125) // each node has its own /tmp, so the job cannot find this folder
		contains(t, res.stderr, "ended before its tasks began: FAILED, with status 125: node h2: there is no ")
		res = b.submit("--sbatch-option=--output=/nowhere/out", "true").want(125)
		contains(t, res.stderr, " of Slurm could not write its output, /nowhere/out\n", "hint: the nodes must have ")
		b.idle()
	})
}

// interrupt sends Ctrl-C to the plx process that has submitted a job.
func (b *slurmBench) interrupt() {
	b.t.Helper()
	if err := b.process(b.slurm.Login, "launch --slurm").Signal(syscall.SIGINT); err != nil {
		b.t.Fatal(err)
	}
}

// submitsAttached submits a job and follows it to its end. The job has a
// secret variable, which the batch script must not contain.
func submitsAttached(b *slurmBench) {
	program := b.file("fails", "seq 2000\necho \"on $(hostname) with $TOKEN${PLX_SUBMITTED-}\"\n[ $RANK = 0 ] || { sleep 0.2; exit 3; }\nexec sleep 300\n")
	attached := b.submit("--nodes", "2", "--partition", "main", "--env", "TOKEN=se'cret", program)
	script := b.slurm.Run("scontrol", "write", "batch_script", attached.jobOfSlurm(), "-")
	if strings.Contains(script, "cret") || !strings.Contains(script, " launch --ps=none --env-file=") {
		b.t.Errorf("the script: %s", script)
	}
	res := attached.want(3)
	for i, host := range []string{"h2", "h3"} {
		got := lines(res.stdout, fmt.Sprintf("worker:%d", i))
		if len(got) != 2001 || got[2000] != "on "+host+" with se'cret" {
			b.t.Errorf("worker:%d printed %d lines, at last %q", i, len(got), got[max(0, len(got)-1):])
		}
	}
	res.lastLine(b.t, "worker:1 on h3 exited with status 3")
	left, err := filepath.Glob(filepath.Join(b.home, ".plx", "jobs", "*", "environment"))
	if err != nil || len(left) > 0 {
		b.t.Errorf("variables are left in %v, %v", left, err)
	}
	b.idle()
}

// followsPending follows a pending job with three commands, from before its
// start.
func followsPending(b *slurmBench) {
	free := b.occupy("")
	res := b.submit("--nodes=2", "--detach", "--name", "queued", b.file("talks", "echo up\nexec sleep 300\n")).want(0)
	job := strings.TrimSpace(res.stdout)
	jobs := b.login(b.plx, "jobs").want(0)
	contains(b.t, jobs.stdout, job, "pending")
	contains(b.t, jobs.stderr, "plx: job queued", "is pending (")
	contains(b.t, b.login(b.plx, "status", "queued").want(0).stdout, job, "pending")
	contains(b.t, b.login(b.plx, "stacks", job).want(125).stderr, "its tasks have not begun", "hint: plx attach waits for it")
	follow := b.login(b.plx, "logs", "-f", "queued")
	attached := b.login(b.plx, "attach", job)
	attached.await(attached.stderr, "is pending (")
	follow.await(follow.stderr, "is pending (")
	free()
	attached.awaitLine("worker:1", "up")
	follow.awaitLine("worker:1", "up")
	contains(b.t, b.login(b.plx, "jobs").want(0).stdout, job, "running")
	b.login(b.plx, "stop", job).want(0)
	attached.want(143).lastLine(b.t, ": stopped by plx stop")
	follow.want(0)
	contains(b.t, b.login(b.plx, "jobs").want(0).stdout, "stopped by plx stop")
	contains(b.t, b.login(b.plx, "logs", job).want(0).stdout, "up")
	b.idle()
}

// endsPending ends pending jobs by plx stop, by Ctrl-C and by scancel.
func endsPending(b *slurmBench) {
	b.occupy("")
	stopped := b.submit("--nodes=2", "--name", "early", "true")
	stopped.await(stopped.stderr, "is pending (")
	b.login(b.plx, "stop", "early").want(0).lastLine(b.t, ": stopped before its tasks began")
	stopped.want(143).lastLine(b.t, "was cancelled before its tasks began")
	contains(b.t, b.login(b.plx, "jobs").want(0).stdout, "early-", "stopped", "CANCELLED")
	contains(b.t, b.login(b.plx, "logs", "early").want(143).stderr, "was cancelled before its tasks began")

	interrupted := b.submit("--nodes=2", "true")
	interrupted.await(interrupted.stderr, "is pending (")
	b.interrupt()
	interrupted.want(130).lastLine(b.t, ": stopped before its tasks began")

	cancelled := b.submit("--nodes=2", "true")
	cancelled.await(cancelled.stderr, "is pending (")
	b.slurm.Run("scancel", cancelled.jobOfSlurm())
	cancelled.want(143).lastLine(b.t, "was cancelled before its tasks began")
}

// refusesSubmissions checks submissions that plx refuses, each with the reason
// in one line.
func refusesSubmissions(b *slurmBench) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--partition=nosuch", "true"}, 125, "sbatch: invalid partition specified: nosuch (exit status 1)"},
		{[]string{"--sbatch-option=account=x", "true"}, 2, `--sbatch-option "account=x": an option begins with a dash`},
		{[]string{"--sbatch-option=--array=1-3", "true"}, 2, "--sbatch-option --array=1-3: plx launch submits one job, which runs one script"},
		{[]string{"--host=h2", "true"}, 2, "--slurm and --host exclude each other: Slurm chooses the hosts"},
		{[]string{"--slurm=false", "--nodes=2", "true"}, 2, "--nodes is for a job that --slurm submits"},
		{[]string{"--detach", "--grep=x", "true"}, 2, "--grep, --task and --rank need an attached job, and --detach was given"},
		{[]string{"./nothing"}, 127, "program ./nothing: no such file on this machine"},
	} {
		own := b.submit(c.args...).want(c.code).ownLines()
		if len(own) != 2 || own[0] != c.want || !strings.HasPrefix(own[1], "hint: ") {
			b.t.Errorf("%q: %q, want %q and a hint", c.args, own, c.want)
		}
	}
	own := b.submitFrom("$HOME && PATH=/nowhere", "true").want(125).ownLines()
	if len(own) != 2 || own[0] != "there is no sbatch here" {
		b.t.Errorf("without sbatch: %q", own)
	}
	left := func() int {
		all, err := os.ReadDir(filepath.Join(b.home, ".plx", "jobs"))
		if err != nil {
			b.t.Fatal(err)
		}
		return len(all)
	}
	before := left()
	text := b.submit("--dry-run", "--nodes=2", "--env", "A=secret", "--setup", "it's", "true", "--x y").want(0).stdout
	contains(b.t, text, " --nodes=2 <<'END'\n#!/bin/sh\n", ` launch --ps=none '--setup=it'\''s' --env-file=/root/.plx/jobs/true-`, " true '--x y'\nEND\n")
	if strings.Contains(text, "secret") || left() != before {
		b.t.Errorf("a dry run left %d new folders, and printed %s", left()-before, text)
	}
}
