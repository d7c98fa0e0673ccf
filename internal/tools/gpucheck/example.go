package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// trainings are the flags of the examples, the quick ones for a stand-in.
var trainings = map[string]struct{ full, quick []string }{
	"linear": {[]string{"--steps=200"}, []string{"--steps=8"}},
	"mlp": {[]string{"--niters=300", "--report-every=300"}, []string{"--niters=8", "--dim-in=48", "--dim-hidden=32", "--n-layers=3", "--n-classes=6",
		"--train-size=240", "--batch-size=24", "--report-every=8"}},
	"mnist": {[]string{"--steps=300"}, []string{"--steps=7", "--batch-size=4", "--samples=40"}},
	"cifar": {[]string{"--steps=100"}, []string{"--steps=7", "--batch-size=2", "--samples=20"}},
}

// The losses of the first steps on the GPU are those on the CPU within lossBound,
// relative to losses above 1. Later ones drift apart by rounding, so the means of the
// last quarter are compared, within meanBound.
const (
	firstSteps = 6
	lossBound  = 2e-4
	meanBound  = 0.1
)

// example trains an example on the CPU, on the GPU, and by two workers on the GPU.
func example(name string) func(context.Context, *folder, *record) (string, error) {
	return func(ctx context.Context, f *folder, r *record) (string, error) {
		program, err := f.program("examples")
		if err != nil {
			return "", err
		}
		flags := trainings[name].full
		if f.quick {
			flags = trainings[name].quick
		}
		runs := map[string][]step{}
		for _, device := range []string{"cpu", "gpu"} {
			summaries := filepath.Join(f.temp, name+"-"+device)
			e := f.exec(ctx, nil, program, slices.Concat([]string{name}, flags, []string{"--seed=3", "--device=" + device, "--summary-dir=" + summaries, "--summary-every-steps=1"})...)
			if err := e.failed("on the " + device); err != nil {
				return "", err
			}
			if runs[device], err = readSteps(summaries); err != nil {
				return "", err
			}
		}
		if err := compareLosses(runs["gpu"], runs["cpu"]); err != nil {
			return "", err
		}
		if err := f.pair(ctx, name, program); err != nil {
			return "", err
		}
		gpu, cpu := runs["gpu"], runs["cpu"]
		r.figure(figure{What: "step of " + name, Ms: typical(gpu)})
		return fmt.Sprintf("%d steps, last loss %.6g on the GPU and %.6g on the CPU, a step takes %.3g ms and %.3g ms; two workers on the GPU have the bits of one", len(gpu),
			gpu[len(gpu)-1].Loss, cpu[len(cpu)-1].Loss, typical(gpu), typical(cpu)), nil
	}
}

// step is a line of the trainer's summaries.
type step struct {
	Loss    float64 `json:"loss"`
	Compute float64 `json:"compute_ms"`
	Wait    float64 `json:"wait_ms"` // the rest of the step's time
}

// readSteps reads the summaries in a folder.
func readSteps(folder string) (all []step, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "steps.*.jsonl"))
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("%d files of summaries, want 1: %w", len(files), err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var s step
		if err := d.Decode(&s); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the summaries: %w", err) // a loss that is no number, among others
		}
		all = append(all, s)
	}
}

// compareLosses compares a training on the GPU with one on the CPU.
func compareLosses(gpu, cpu []step) error {
	if len(gpu) != len(cpu) || len(gpu) <= firstSteps {
		return fmt.Errorf("%d steps on the GPU, %d on the CPU, want more than %d", len(gpu), len(cpu), firstSteps)
	}
	for i := range firstSteps {
		if err := near(fmt.Sprintf("the loss of step %d", i), gpu[i].Loss, cpu[i].Loss, lossBound); err != nil {
			return err
		}
	}
	return near("the mean loss of the last quarter", lastQuarter(gpu), lastQuarter(cpu), meanBound)
}

func near(what string, got, want, bound float64) error {
	if off := math.Abs(got - want); !(off <= bound*max(1, math.Abs(want))) {
		return fmt.Errorf("%s is %v on the GPU, %v on the CPU: the bound is %g", what, got, want, bound)
	}
	return nil
}

func lastQuarter(steps []step) (mean float64) {
	last := steps[len(steps)*3/4:]
	for _, s := range last {
		mean += s.Loss / float64(len(last))
	}
	return mean
}

// typical is the median time of the second half of the steps, in milliseconds.
func typical(steps []step) float64 {
	var times []float64
	for _, s := range steps[len(steps)/2:] {
		times = append(times, s.Compute+s.Wait)
	}
	slices.Sort(times)
	return times[len(times)/2]
}
