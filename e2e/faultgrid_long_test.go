//go:build long

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/chaos"
	"github.com/plx-run/plx/internal/test/chaos/ledger"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

var gridSeed = flag.Uint64("seed", 1, "the fault grid: `number` from which the steps follow after which faults come")

// gridSamples is the file in which -update stores the measurements.
const gridSamples = "../docs/reliability/grid.json"

// TestFaultGrid tries each fault, on each victim, in each architecture.
// Package chaos lists these combinations (cells) and the expected outcome of
// each. Each cell proves that its fault happened. At the end, the weights must
// have the same bits as without the fault. The test takes an hour; to try some
// cells, use -run TestFaultGrid/ps/worker/
func TestFaultGrid(t *testing.T) {
	g := openGrid(t)
	tried := 0
	for _, c := range chaos.Grid() {
		t.Run(c.Name(), func(t *testing.T) {
			tried++
			if !c.Loose() && g.digest == "" {
				g.reference(t)
			}
			began := time.Now()
			r := g.trial(t, c, c.Name())
			r.sample = chaos.Sample{Cell: c.Name(), Outcome: c.Promise().Outcome, Began: began.UTC().Format(time.RFC3339), Commit: g.commit, Seed: *gridSeed, Target: c.Target(*gridSeed)}
			t.Cleanup(func() { // after all others
				r.sample.Took = time.Since(began).Seconds()
				if t.Logf("%.0f s: %+v", r.sample.Took, r.sample); *update {
					r.keep()
				}
			})
			t.Cleanup(r.clean)
			r.try()
		})
	}
	if tried == 0 {
		t.Error("no cell has such a name")
	}
}

// grid holds what all cells of the fault grid share.
type grid struct {
	*bench
	file      string // path of the resource file with all hosts, for trainings whose workers wait for each other
	fewFile   string // path of the resource file with the first two hosts, each with a worker
	looseFile string // path of the resource file with all hosts, for trainings whose workers do not wait for each other
	workload  string // path of the training program
	commit    string // what is tried
	digest    string // hash of the weights after a training without a fault; "" before that training has run
}

// openGrid starts three hosts, each with a server. The first also has the
// chief (worker 0), and the second has the other worker.
func openGrid(t *testing.T) *grid {
	b := newBench(t, testhosts.Options{Hosts: ledger.Workers})
	commit, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*").Output()
	if err != nil && *update {
		t.Fatal(err)
	}
	return &grid{
		bench: b,
		file:  b.ResourceFile("h1: cpu", "h2: cpu", "h3: ps"),
		// If workers do not wait for each other, the job can continue without
		// the second host, which has only a worker. The third host has a
		// worker and a server.
		looseFile: b.ResourceFile("h1: cpu", "h2: cpu", "h3: cpu"),
		fewFile:   b.ResourceFile("h1: cpu", "h2: cpu"),
		workload:  testhosts.Binary(t, "github.com/plx-run/plx/internal/test/chaos/workload", "-tags=failpoint"),
		commit:    strings.TrimSpace(string(commit)),
	}
}

// trial is one run of a cell of the fault grid, or a run without a fault.
type trial struct {
	*bench
	grid    *grid
	cell    chaos.Cell
	inject  injection           // how the trial causes the fault
	script  *chaos.Transcript   // what plx prints
	name    string              // of the job
	id      string              // id of the job if it is detached; otherwise ""
	job     *running            // the plx process that drives or follows the job
	scaling *running            // the process of plx scale; nil if the trial does not scale the job
	scaled  *chaos.Transcript   // output of plx scale; nil if the trial does not scale the job
	stopped []testhosts.Process // processes of the victim that last received a signal
	struck  time.Time           // time of the fault; zero before the fault
	undone  bool                // true after the trial has undone the fault, or tried to
	sample  chaos.Sample        // the result, written meanwhile
}

// mark is the name of an environment variable, with "=", by which a trial
// recognises the processes that it started.
const mark = "FAULTGRID="

func (g *grid) trial(t *testing.T, c chaos.Cell, name string) *trial {
	r := &trial{bench: g.in(t), grid: g, cell: c, inject: injectionOf(c), name: "grid-" + strings.ReplaceAll(name, "/", "-")}
	r.env = append(slices.Clone(r.env), mark+g.Home)
	r.script = r.tap(name)
	return r
}

// tap directs all further output of plx to a new transcript. If the test
// fails, it logs the transcript.
func (r *trial) tap(name string) *chaos.Transcript {
	script := chaos.NewTranscript()
	r.merged = script
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Logf("%s:\n%s", name, script)
		}
	})
	return script
}

// host is the victim's.
func (r *trial) host() *testhosts.Host { return r.Hosts[r.cell.Victim.Host()] }

// try tries the cell.
func (r *trial) try() {
	defer r.undo()
	r.begin()
	r.awaitLine(fmt.Sprint("step ", r.sample.Target), chaos.Reached(r.sample.Target))
	r.struck = time.Now()
	r.sample.Proof = r.inject.strike(r)
	if r.inject.then != nil {
		r.sample.Proof += "; " + r.inject.then(r)
	}
	if r.cell.Promise().Outcome == chaos.Ends {
		r.judgeEnd()
		return
	}
	r.judgeSurvival()
}

// reference trains without a fault in all architectures, and fails the test
// unless all end with the same weights.
func (g *grid) reference(t *testing.T) {
	t.Helper()
	digests := map[string]bool{}
	for _, arch := range chaos.Architectures {
		r := g.trial(t, chaos.Cell{Arch: arch, Victim: chaos.Chief}, arch)
		r.begin()
		r.job.want(0)
		g.digest = r.script.Measure(time.Now()).Digest
		digests[g.digest] = true
		r.clean()
	}
	if g.digest == "" || len(digests) > 1 {
		g.digest = ""
		t.Fatalf("weights without a fault: %v", digests)
	}
}

// awaitLine waits until the job prints a line for which meant returns true.
func (r *trial) awaitLine(what string, meant func(string) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	defer cancel()
	if !r.script.Await(ctx, r.job.done, meant) {
		r.t.Fatal("it did not come to: ", what)
	}
}

// begin launches the job.
func (r *trial) begin() {
	r.t.Helper()
	if r.inject.before != nil {
		r.inject.before(r)
	}
	var more []string
	if r.inject.failpoint != "" {
		more = append(more, "--setup", r.inject.setup())
	}
	if !r.cell.Victim.Detached() {
		r.job = r.start(r.launch(r.cell.Pace(), more...)...)
		return
	}
	b := *r.bench
	b.merged = nil
	r.id = strings.TrimSpace(b.want(0, r.launch(r.cell.Pace(), append(more, "--detach")...)...).stdout)
	r.job = r.start("attach", "--color", "never", r.id)
}

// ledgers is the folder in which workers record their gradients, and which of
// these the servers reported as applied.
const ledgers = "ledger"

// launch returns the arguments of a launch of the training program. It inserts
// the arguments more before the program.
func (r *trial) launch(pace time.Duration, more ...string) []string {
	c := r.cell
	file, own := r.grid.file, []string{"--arch", c.Arch, "--virtual-workers", "4", "--digest", "--partition-bytes", "8192", "--bucket-bytes", "8192"}
	if c.Victim.Scaled() {
		file = r.grid.fewFile
	}
	if c.Loose() {
		more = append(more, "--freeze-timeout", "4s")
		if !c.Victim.Scaled() {
			file, more = r.grid.looseFile, append(more, "--ps", "h1,h3")
		}
		own = []string{"--arch", "ps", "--sync", chaos.Syncs[c.Arch], "--partition-bytes", "2048", "--virtual-workers", fmt.Sprint(ledger.Workers), "--ledger", ledgers}
		if c.Arch == "backup" {
			own = append(own, "--quiet", "0")
		}
	}
	args := []string{"launch", "--color", "never", "--hosts", file, "--name", r.name, "--lease", chaos.Lease.String(), "--grace", "2s",
		"--start-timeout", "60s", "--max-time", "3m", "--max-restarts", "3", "--min-workers", "1"}
	return slices.Concat(args, more, []string{r.grid.workload}, own, []string{"--ckpt-dir", "kept",
		"--ckpt-every-steps", fmt.Sprint(chaos.CheckpointEvery), "--steps", fmt.Sprint(chaos.Steps), "--pace", pace.String()})
}

// undo undoes the fault, unless that was already done.
func (r *trial) undo() {
	if r.undone || r.inject.after == nil || r.struck.IsZero() && r.inject.before == nil {
		return
	}
	r.undone = true
	r.inject.after(r)
}

// triggers is the common prefix of the files for which failpoints wait.
const triggers = "/tmp/plx-fault"

// clean ends remaining processes and removes jobs and checkpoints, so that a
// cell does not affect the next one.
func (r *trial) clean() {
	for _, h := range r.Hosts {
		ctx, cancel := context.WithTimeout(context.Background(), 2*chaos.Lease)
		if h.AwaitIdle(ctx) != nil {
			h.PowerOff()
			h.PowerOn()
		}
		cancel()
		r.shell(h, "rm -rf ~/.plx/jobs ~/.plx/ckpt "+triggers+"*")
	}
}

// keep replaces the stored sample of this cell by the new one. If the outcome
// was not the promised one, it removes the stored sample.
func (r *trial) keep() {
	var all chaos.Samples
	if err := json.Unmarshal(read(r.t, gridSamples), &all); err != nil {
		r.t.Fatal(err)
	}
	i := slices.IndexFunc(all.Samples, func(s chaos.Sample) bool { return s.Cell == r.sample.Cell })
	if i < 0 {
		i = len(all.Samples)
	} else {
		all.Samples = slices.Delete(all.Samples, i, i+1)
	}
	if !r.t.Failed() {
		all.Samples = slices.Insert(all.Samples, i, r.sample)
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err := errors.Join(err, os.WriteFile(gridSamples, append(text, '\n'), 0o644)); err != nil {
		r.t.Fatal(err)
	}
}

// judgeSurvival waits for a job that must survive the fault, and reports each
// deviation as a test error.
func (r *trial) judgeSurvival() {
	r.survive()
	code := r.job.wait().code
	ended := time.Now()
	r.take(code, ended)
	r.check(r.sample.Survived(r.cell, r.grid.digest))
	if r.cell.Loose() {
		r.check(r.script.Audit(r.cell.Arch, r.ledgers()))
	}
	if r.scaling != nil {
		r.check(r.scaled.Scaled(r.scaling.wait().code))
	}
	r.hostsGone(chaos.Lease)
	r.launchersGone()
}

// ledgers returns the folders in which workers have recorded their gradients.
func (r *trial) ledgers() (all []string) {
	for _, h := range r.Hosts {
		all = append(all, r.files(h, ".plx", "ckpt", "*", ledgers)...)
	}
	return all
}

// files returns the files in a host's home directory that match the pattern.
func (r *trial) files(h *testhosts.Host, pattern ...string) []string {
	r.t.Helper()
	all, err := filepath.Glob(filepath.Join(append([]string{h.HomeDir}, pattern...)...))
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

func (r *trial) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Error(err)
	}
}

// survive completes a trial in which the launching machine had the fault. It
// waits until the hosts have ended all processes, and then undoes the fault.
// If the job is detached, survive follows it again with plx attach.
func (r *trial) survive() {
	switch {
	case r.cell.Victim == chaos.Departed:
		r.hostsGone(3 * time.Minute) // --max-time
		r.undo()
		r.end(r.job)
		r.job = r.start("attach", "--color", "never", r.id)
	case r.cell.Victim == chaos.Launcher && slices.Contains([]chaos.Fault{chaos.Stop, chaos.Cut, chaos.Mute, chaos.Deaf}, r.cell.Fault):
		r.hostsGone(chaos.Lease + 2*time.Second)
		r.undo()
	}
}

// end kills a plx process that may still run, and waits for its end.
func (r *trial) end(j *running) {
	_ = j.cmd.Process.Kill() // it may have ended
	<-j.done
}

// take stores the measurements of the trial, and the line in which plx reports
// the fault.
func (r *trial) take(code int, ended time.Time) {
	r.sample.Measures = r.script.Measure(r.struck)
	if r.cell.Victim == chaos.Departed {
		// Only the plx process that followed the job was away; the training
		// continued.
		r.sample.Noticed, r.sample.Back = -1, 0
	}
	r.sample.Code, r.sample.Ended = code, ended.Sub(r.struck).Seconds()
	host, address := "", ""
	if r.cell.Victim.Host() >= 0 {
		host, address = r.host().Name, r.host().Addr
	}
	var err error
	r.sample.Said, err = r.script.Named(r.cell, r.struck, host, address)
	r.check(err)
}

// learning is the longest time after which a plx process that only follows a
// job must notice that the job's hosts are lost.
const learning = time.Minute

// judgeEnd waits for a job that the fault must end, launches another job with
// the same name, and reports each deviation as a test error.
func (r *trial) judgeEnd() {
	p := r.cell.Promise()
	r.hostsGone(p.Within)
	gone := time.Now()
	select {
	case <-r.job.done:
	case <-time.After(learning):
		r.t.Fatalf("nobody was told for %v", learning)
	}
	code := r.job.wait().code
	r.take(code, gone)
	if !slices.Contains(p.Codes, code) {
		r.t.Errorf("exit status %d, want one of %v", code, p.Codes)
	}
	// The chief (worker 0) made further steps until its lease expired. plx
	// never received these lines, so read them from the host's log.
	spools := r.files(r.Hosts[chaos.Chief.Host()], ".plx", "jobs", "*", "*", "logs", "worker-0.stdout")
	if len(spools) != 1 {
		r.t.Fatalf("%d spools of the chief's, want 1", len(spools))
	}
	reached := chaos.Spooled(string(read(r.t, spools[0])))
	if reached < 0 {
		r.t.Fatalf("no step in %s", spools[0])
	}
	r.undo()
	r.hostsGone(2 * chaos.Lease)
	r.launchersGone()

	next := r.tap("the next launch")
	r.start(r.launch(chaos.Fast)...).want(0)
	r.check(r.sample.Relaunched(reached, next.Measure(time.Now()), r.grid.digest))
	r.hostsGone(chaos.Lease)
}

// launchersGone fails the test if a process that a launcher has started still
// runs on this machine.
func (r *trial) launchersGone() {
	folders, err := filepath.Glob("/proc/[0-9]*")
	r.check(err)
	for _, folder := range folders {
		environ, _ := os.ReadFile(folder + "/environ") // it may have ended
		if slices.Contains(strings.Split(string(environ), "\x00"), mark+r.Home) {
			command, _ := os.ReadFile(folder + "/cmdline") // it may have ended
			r.t.Errorf("a process of the launcher's is left: %s %q", filepath.Base(folder), command)
		}
	}
}
