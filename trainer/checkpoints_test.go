package trainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/config"
)

// everySteps returns a setting that makes checkpoints in folder dir at an
// interval of every steps; 0 means only at the end.
func everySteps(dir string, every int) Setting {
	return flags(func(c *config.Config) { c.CheckpointDir, c.CheckpointEverySteps = dir, every })
}

// until trains up to the given step, as a program does whose training ends at
// that step.
func (x trial) until(steps int, tj *testJob) (trained, error) {
	x.steps = steps
	all := make([]trained, len(tj.jobs))
	errs := tj.end(func(_ context.Context, j *Job) (err error) {
		all[j.WorkerID()], err = x.run(j)
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return all[0], err // the servers are not checked, because some may wait for workers that never connect
	}
	return all[0], tj.wait()
}

// shape is a number of workers and servers, with their settings.
type shape struct {
	workers, servers int
	settings         []Setting
}

// resumes trains in several runs, each for the given number of steps and in
// another shape, and resumes from the last checkpoint each time. It checks
// that the weights have the same bits as after a single run.
func (x trial) resumes(t *testing.T, each int, shapes ...shape) {
	x.steps = each * len(shapes)
	want := x.alone(t, VirtualWorkers(6))
	dir, took := t.TempDir(), 0
	for i, s := range shapes {
		settings := append([]Setting{VirtualWorkers(6), everySteps(dir, 4), restless(t)}, s.settings...)
		tj := newTestJobOn(t, hostNames(s.workers), s.servers, settings...)
		got, err := x.until(each*(i+1), tj)
		if err != nil {
			t.Fatalf("run %d: %v\n%s", i, err, tj.logs[0])
		}
		for k, loss := range got.losses {
			if !sameBits(loss, want.losses[took+k]) {
				t.Fatalf("run %d: loss %v of step %d, want %v", i, loss, took+k, want.losses[took+k])
			}
		}
		if len(got.losses) != each {
			t.Fatalf("run %d took %d steps, want %d\n%s", i, len(got.losses), each, tj.logs[0])
		}
		took += len(got.losses)
		if i == len(shapes)-1 && got.digest != want.digest {
			t.Errorf("%s, want %s", got.digest, want.digest)
		}
	}
}

// A training that was interrupted and resumed must have the same bits as one
// that was not. The test covers numbers of workers and servers, architectures,
// optimisers, batch norm and dropout.
func TestResumedTrainingHasSameBits(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	testResume(t, false) // the long test covers every optimiser in every shape
}

func testResume(t *testing.T, everywhere bool) {
	shapes := []shape{
		{3, 2, []Setting{Arch("ps")}},
		{2, 0, []Setting{Arch("allreduce")}},
		{6, 3, []Setting{Arch("hybrid")}},
		{1, 0, nil},
		{2, 1, []Setting{Arch("ps"), scattered}},
		{4, 2, []Setting{Arch("hybrid"), flags(func(c *config.Config) { c.TuneAfterSteps, c.Report = 3, 8 })}},
	}
	options := []Option{GlobalBatch(12), ClipNorm(0.5)}
	for name, c := range map[string]struct {
		opt    Optimizer
		shapes []shape
	}{"sgd": {SGD(0.1), shapes[4:]}, "momentum": {Momentum(0.1, 0.9), shapes[:2]}, "adagrad": {Adagrad(0.1), shapes[2:4]}, "adam": {Adam(0.01), shapes}} {
		if everywhere {
			c.shapes = shapes
		}
		t.Run(name, func(t *testing.T) {
			trial{build: divided, feed: sentences, opt: c.opt, options: options}.resumes(t, 5, c.shapes...)
		})
	}
	t.Run("batch norm", func(t *testing.T) {
		trial{build: smallCNN, feed: classified(2, 6, 6), opt: Adam(0.02), options: options}.resumes(t, 3, shapes...)
	})
	t.Run("schedule", func(t *testing.T) {
		opt := Momentum(0.1, 0.9).WithSchedule(func(step int) float64 { return 0.1 / float64(step+1) })
		trial{build: dropoutMLP, feed: classified(60), opt: opt, options: options}.resumes(t, 3, shapes...)
	})
}

var savedAt = regexp.MustCompile(`checkpoint of step (\d+):`)

// A training with any --sync mode can resume from a checkpoint of any other
// mode.
func TestCheckpointsMoveBetweenSyncModes(t *testing.T) {
	x := trial{build: words, feed: sentences, opt: Adam(0.01), options: []Option{GlobalBatch(12)}}
	dir, last := t.TempDir(), "training begins anew"
	for i, mode := range []string{"async", "sync", "ssp:2", "backup:1", "group:2", "async"} {
		tj := newTestJobOn(t, hostNames(3), 2, VirtualWorkers(6), everySteps(dir, 3), Arch("ps"), Sync(mode))
		if _, err := x.until(5*(i+1), tj); err != nil {
			t.Fatalf("%s: %v\n%s", mode, err, tj.logs[0])
		}
		said := tj.logs[0].String()
		saved := savedAt.FindAllStringSubmatch(said, -1)
		if !strings.Contains(said, last) {
			t.Fatalf("%s does not say %q:\n%s", mode, last, said)
		}
		if len(saved) == 0 || saved[len(saved)-1][1] != strconv.Itoa(5*(i+1)) {
			t.Fatalf("%s: checkpoints %v, want the last of step %d:\n%s", mode, saved, 5*(i+1), said)
		}
		last = "going on after step " + saved[len(saved)-1][1] + ","
	}
}

// In modes in which workers do not wait for each other, each worker resumes at
// its own step, if the number of workers is the same.
func TestWorkersResumeAtTheirOwnSteps(t *testing.T) {
	const ahead = 4 // number of steps by which the last worker is ahead of the chief
	dir := t.TempDir()
	for i, c := range []struct {
		mode           string
		workers, begin int // of the chief
		even           bool
		says           string
	}{
		{"async", 3, 0, true, "training begins anew"},
		{"async", 3, 10, false, "each worker goes on where it was, after steps 10 to 14"},
		{"ssp:9", 3, 20, false, "each worker goes on where it was, after steps 20 to 24"},
		{"async", 2, 30, true, "as there are others now, all go on after step 30"},
		{"backup:0", 2, 40, true, "as there are others now, all go on after step 40"},
		{"async", 2, 50, true, "going on after step 50,"},
	} {
		tj := newTestJobOn(t, hostNames(c.workers), 2, VirtualWorkers(6), everySteps(dir, 3), Arch("ps"), Sync(c.mode))
		errs := tj.end(func(_ context.Context, j *Job) error {
			r, err := j.Parallelize(t.Context(), regression{}.build, SGD(0.01), GlobalBatch(12))
			if err != nil {
				return err
			}
			want, extra := c.begin, ahead*j.WorkerID()/(c.workers-1)
			if !c.even {
				want += extra
			}
			if c.mode == "backup:0" {
				extra = 0
			}
			if r.Steps() != want {
				return fmt.Errorf("begins after step %d, want %d", r.Steps(), want)
			}
			from, to := r.Rows()
			for r.Steps() < 10*(i+1)+extra {
				if _, err := r.Step(t.Context(), regression{}.feed(r.Steps(), from, to)); err != nil {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(append(errs, tj.wait())...); err != nil {
			t.Fatalf("%s: %v\n%s", c.mode, err, tj.logs[0])
		}
		if said := tj.logs[0].String(); !strings.Contains(said, c.says) {
			t.Errorf("%s, run %d does not say %q:\n%s", c.mode, i, c.says, said)
		}
	}
}

// If a checkpoint is damaged on all hosts, training resumes from the one
// before and logs that. If all are damaged, it fails instead of starting from
// scratch.
func TestDamagedCheckpointsAreSkipped(t *testing.T) {
	x := trial{build: words, feed: sentences, opt: Adam(0.01), options: []Option{GlobalBatch(12)}, steps: 12}
	want := x.alone(t, VirtualWorkers(6))
	dir := t.TempDir()
	settings := []Setting{VirtualWorkers(6), everySteps(filepath.Join(dir, eachHost), 4), Arch("hybrid")}
	if _, err := x.until(8, newTestJobOn(t, hostNames(2), 2, settings...)); err != nil {
		t.Fatal(err)
	}
	damage(t, filepath.Join(dir, "*", "000000000008-*", "*.safetensors"), func(b []byte) []byte { b[len(b)/2] ^= 0x10; return b })
	tj := newTestJobOn(t, hostNames(2), 2, settings...)
	got, err := x.until(12, tj)
	if err != nil || got.digest != want.digest || len(got.losses) != 8 {
		t.Errorf("%v: %d steps to %s, want 8 to %s\n%s", err, len(got.losses), got.digest, want.digest, tj.logs[0])
	}
	if said := tj.logs[0].String(); !strings.Contains(said, "000000000008-g0-") || !strings.Contains(said, "127.0.0.") {
		t.Errorf("it does not say what was skipped:\n%s", said)
	}
	damage(t, filepath.Join(dir, "*", "*", "*.safetensors"), func(b []byte) []byte { return b[:len(b)-1] })
	if _, err := x.until(16, newTestJobOn(t, hostNames(2), 2, settings...)); err == nil || !strings.Contains(err.Error(), "checkpoint") {
		t.Errorf("with no good checkpoint: %v", err)
	}
}

// damage changes files.
func damage(t *testing.T, pattern string, change func([]byte) []byte) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %d files", pattern, err, len(files))
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, change(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// If one host loses its checkpoint folder, training resumes from the copies on
// other hosts.
func TestCheckpointSurvivesLossOfAHost(t *testing.T) {
	x := trial{build: words, feed: sentences, opt: Momentum(0.1, 0.9), options: []Option{GlobalBatch(12)}, steps: 10}
	want := x.alone(t, VirtualWorkers(6))
	for lost := range 3 {
		dir := t.TempDir()
		settings := []Setting{VirtualWorkers(6), everySteps(filepath.Join(dir, eachHost), 0), Arch("hybrid")}
		if _, err := x.until(5, newTestJobOn(t, hostNames(3), 3, settings...)); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, hostNames(3)[lost])); err != nil {
			t.Fatal(err)
		}
		tj := newTestJobOn(t, hostNames(3), 3, settings...)
		if got, err := x.until(10, tj); err != nil || got.digest != want.digest || len(got.losses) != 5 {
			t.Errorf("without host %d: %v: %d steps to %s, want 5 to %s\n%s", lost, err, len(got.losses), got.digest, want.digest, tj.logs[0])
		}
	}
}

func TestCheckpointOfAnotherModelIsRefused(t *testing.T) {
	dir := t.TempDir()
	x := trial{build: words, feed: sentences, opt: SGD(0.1), options: []Option{GlobalBatch(4)}, steps: 3}
	if _, err := x.until(3, newTestJob(t, 2, 0, everySteps(dir, 0))); err != nil {
		t.Fatal(err)
	}
	for what, y := range map[string]trial{
		"optimiser": {build: words, feed: sentences, opt: Adam(0.1), options: x.options},
		"variable":  {build: func(uint64) Build { return regression{}.build }, feed: regression{}.feed, opt: SGD(0.1), options: x.options},
	} {
		_, err := y.until(5, newTestJob(t, 2, 0, everySteps(dir, 0)))
		var hinted foreignError
		if err == nil || !strings.Contains(err.Error(), what) || !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), "--init-from") {
			t.Errorf("another %s: %v", what, err)
		}
	}
}

func TestCheckpointFlags(t *testing.T) {
	for _, c := range []struct {
		set  func(*config.Config)
		want string
	}{
		{func(c *config.Config) { c.CheckpointDir, c.CheckpointEverySteps, c.CheckpointEverySecs = "x", 1, 1 }, "give one of them"},
		{func(c *config.Config) { c.CheckpointEverySteps = 1 }, "without --ckpt-dir"},
		{func(c *config.Config) { c.CheckpointDir, c.CheckpointKeep = "x", 0 }, "--ckpt-keep is 0"},
		{func(c *config.Config) { c.CheckpointDir, c.CheckpointEverySecs = "x", -1 }, "--ckpt-every-secs is -1"},
	} {
		conf := config.Default()
		c.set(&conf.Config)
		if err := conf.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
