package trainer

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/config"
)

// scored trains on two workers and a server, and calls each after every step.
// It returns the manifests of the checkpoints that are then in folder dir, by
// step.
func scored(t *testing.T, dir string, from, to int, settings []Setting, each func(s *Session, step int)) map[int]*checkpoint.Manifest {
	t.Helper()
	settings = append([]Setting{VirtualWorkers(4), Arch("ps"), flags(func(c *config.Config) { c.CheckpointDir = dir })}, settings...)
	tj := newTestJobOn(t, hostNames(2), 1, settings...)
	x := trial{build: smallCNN, feed: classified(2, 6, 6)}
	errs := tj.end(func(ctx context.Context, j *Job) error {
		s, err := j.Parallelize(ctx, x.build(j.Seed()), Adam(0.02), GlobalBatch(12))
		if err != nil {
			return err
		}
		if s.Steps() != from {
			return fmt.Errorf("begins after step %d, want %d", s.Steps(), from)
		}
		lo, hi := s.Rows()
		for r, err := range s.Train(ctx, to, func(step int) (Feed, error) { return x.feed(step, lo, hi), nil }) {
			if err != nil {
				return err
			}
			each(s, r.Step)
		}
		return nil
	})
	for _, err := range append(errs, tj.wait()) {
		if err != nil {
			t.Fatalf("%v\n%s", err, tj.logs[0])
		}
	}
	return manifests(t, dir)
}

func manifests(t *testing.T, dir string) map[int]*checkpoint.Manifest {
	t.Helper()
	f, err := checkpoint.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	holding, err := f.List()
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]*checkpoint.Manifest{}
	for _, h := range holding {
		if h.Manifest == nil {
			t.Fatal(h.ID, h.Damage)
		}
		all[int(h.Manifest.Step)] = h.Manifest
	}
	return all
}

// The best checkpoint must stay when --ckpt-keep newer ones exist, even after
// a resume, and contain the values that had the best score.
func TestBestCheckpointIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	settings := []Setting{flags(func(c *config.Config) { c.CheckpointEverySteps, c.CheckpointKeep = 1, 2 })}
	scores := []float64{0.25, 0.75, math.NaN(), 0.5, 0.75, 0.5, 0.25, math.Inf(1), 0.5}
	was := map[string]string{} // digest, by step
	each := func(s *Session, step int) {
		if got, want := s.SaveIfBest(scores[step]), step < 2; got != want {
			t.Errorf("step %d with %v is best: %v", step, scores[step], got)
		}
		if s.job.IsChief() {
			digest, err := s.variables.digest(t.Context(), s.Steps())
			if err != nil {
				t.Error(err)
			}
			was[fmt.Sprint(s.Steps())] = digest
		}
	}
	scored(t, dir, 0, 5, settings, each)
	all := scored(t, dir, 5, 9, settings, each)
	if len(all) > 4 || all[2] == nil || !all[2].IsBest || *all[2].Best != 0.75 || all[9] == nil || all[9].IsBest || *all[9].Best != 0.75 {
		t.Errorf("the folder has %v", all)
	}
	for path, step := range map[string]string{filepath.Join(dir, "best"): "2", dir: "9"} {
		c, err := OpenCheckpoint(t.Context(), path, smallCNN(1))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.session.variables.digest(t.Context(), c.Step()); err != nil || got != was[step] {
			t.Errorf("%s: %s, %v; want %s", path, got, err, was[step])
		}
		c.Close() // nothing to lose
	}
}

// A number that a program notes after a step must be in the next checkpoint.
// After a resume from it, every worker must be able to read the number.
func TestNotesAreRestoredOnAllWorkers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	every := []Setting{flags(func(c *config.Config) { c.CheckpointEverySteps = 2 })}
	note := func(s *Session, step int) {
		before, ok := s.Noted("sum")
		if ok != (step > 0) || before != float64(step*(step-1)/2) {
			t.Errorf("%s before step %d: %v, %v", s.job.contract.Task, step, before, ok)
		}
		if err := s.Note("sum", before+float64(step)); err != nil {
			t.Error(err)
		}
		for _, bad := range []float64{math.NaN(), math.Inf(-1)} {
			if err := s.Note("sum", bad); err == nil {
				t.Errorf("%v was taken", bad)
			}
		}
	}
	scored(t, dir, 0, 5, every, note)
	all := scored(t, dir, 5, 8, every, note)
	for step, m := range all {
		if want := float64(step * (step - 1) / 2); m.Notes["sum"] != want || m.Best != nil {
			t.Errorf("the checkpoint of step %d has %v, want %v", step, m.Notes, want)
		}
	}
	c, err := OpenCheckpoint(t.Context(), dir, smallCNN(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if sum, ok := c.Noted("sum"); !ok || sum != 28 {
		t.Errorf("an opened checkpoint has %v", sum)
	}
}

// Save must make a checkpoint of the current step, and do nothing without
// --ckpt-dir.
func TestSaveMakesCheckpointOfThisStep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	all := scored(t, dir, 0, 6, []Setting{flags(func(c *config.Config) { c.CheckpointKeep = 9 })}, func(s *Session, step int) {
		if step == 1 || step == 2 {
			s.Save()
		}
	})
	steps := []int{}
	for step := range all {
		steps = append(steps, step)
	}
	slices.Sort(steps)
	if !slices.Equal(steps, []int{2, 3, 6}) {
		t.Errorf("checkpoints of steps %v, want those after steps 1 and 2 and of the end", steps)
	}
	var log strings.Builder
	j := soloJob(&log)
	s, err := j.Parallelize(t.Context(), smallCNN(1), SGD(0.1), GlobalBatch(12))
	if err != nil {
		t.Fatal(err)
	}
	s.Save()
	if !s.SaveIfBest(-3) || s.SaveIfBest(-4) {
		t.Error("without a folder scores are not compared")
	}
	if _, err := s.Step(t.Context(), classified(2, 6, 6)(0, 0, 12)); err != nil || strings.Contains(log.String(), "checkpoint") {
		t.Errorf("%v\n%s", err, &log)
	}
}
