//go:build long

package examples_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
)

// gpuTrainings has the flags of the trainings that TestGPU runs. The flags
// small also suit a fake GPU, and two workers that share a GPU.
var gpuTrainings = map[string]struct{ flags, small []string }{
	"linear": {[]string{"--steps=200"}, []string{"--steps=8"}},
	"mlp": {[]string{"--niters=300", "--report-every=300"}, []string{"--niters=8", "--dim-in=48", "--dim-hidden=32", "--n-layers=3", "--n-classes=6",
		"--train-size=240", "--batch-size=24", "--report-every=8"}},
	"mnist": {[]string{"--steps=300"}, []string{"--steps=7", "--batch-size=4", "--samples=40"}},
	"cifar": {[]string{"--steps=100"}, []string{"--steps=7", "--batch-size=2", "--samples=20"}},
}

// Each example has the same losses on a GPU as on the CPU, and two workers
// that share the GPU compute the same bits as one. internal/tools/gpucheck
// runs this test on a machine with a GPU. PLX_EXAMPLES then names a program
// that contains all examples; its first argument is the example's name.
func TestGPU(t *testing.T) {
	cudatest.Start(t, cudatest.Options{})
	visible := "CUDA_VISIBLE_DEVICES"
	t.Setenv(visible, cmp.Or(os.Getenv(visible), "0"))
	for name, training := range gpuTrainings {
		t.Run(name, func(t *testing.T) {
			path, named := os.Getenv("PLX_EXAMPLES"), []string{name}
			if path == "" {
				path, named = program(t, name), nil
			}
			flags := training.flags
			if testing.Short() || !cudatest.OnMachine() {
				flags = training.small
			}
			steps := map[string][]gpuStep{}
			for _, device := range []string{"cpu", "gpu"} {
				summaries := t.TempDir()
				alone(t, path, slices.Concat(named, flags, []string{"--seed=3", "--device=" + device, "--summary-dir=" + summaries, "--summary-every-steps=1"})...)
				steps[device] = gpuSteps(t, summaries)
			}
			gpu, cpu := steps["gpu"], steps["cpu"]
			if err := sameLosses(gpu, cpu); err != nil {
				t.Fatal(err)
			}
			// Print the format of Go's benchmarks, which gpucheck parses.
			fmt.Printf("BenchmarkStep/%s %d %.0f ns/op %.0f cpu-ns/op %.6g loss %.6g cpu-loss\n", name, len(gpu), typical(gpu)*1e6, typical(cpu)*1e6,
				gpu[len(gpu)-1].Loss, cpu[len(cpu)-1].Loss)

			arguments := slices.Concat(named, training.small, []string{"--seed=3", "--device=gpu", "--digest", "--virtual-workers=2"})
			want := digest(t, alone(t, path, arguments...))
			tasks, contract := job(t, 0, 2)
			contract.Foreign.Visible = []string{visible + "=" + os.Getenv(visible)}
			if got := digest(t, start(t, path, tasks, contract, arguments)); got != want {
				t.Errorf("two workers on one GPU have %q, one has %q", got, want)
			}
		})
	}
}

// gpuStep is one line of the trainer's step summaries in JSON.
type gpuStep struct {
	Loss    float64 `json:"loss"`
	Compute float64 `json:"compute_ms"`
	Wait    float64 `json:"wait_ms"` // the rest of the step's time, in milliseconds
}

func gpuSteps(t *testing.T, folder string) (all []gpuStep) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "steps.*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files of summaries, want 1: %v", len(files), err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var s gpuStep
		if err := d.Decode(&s); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err) // for example a loss that is not a number
		}
		all = append(all, s)
	}
}

// sameLosses compares a training on the GPU with one on the CPU. It compares
// the first losses one by one, but of the last quarter only the means, because
// rounding lets later losses drift apart.
func sameLosses(gpu, cpu []gpuStep) error {
	const first = 6
	if len(gpu) != len(cpu) || len(gpu) <= first {
		return fmt.Errorf("%d steps on the GPU, %d on the CPU, want more than %d", len(gpu), len(cpu), first)
	}
	near := func(what string, got, want, bound float64) error {
		if off := math.Abs(got - want); !(off <= bound*max(1, math.Abs(want))) {
			return fmt.Errorf("%s is %v on the GPU, %v on the CPU: the bound is %g", what, got, want, bound)
		}
		return nil
	}
	for i := range first {
		if err := near(fmt.Sprintf("the loss of step %d", i), gpu[i].Loss, cpu[i].Loss, 2e-4); err != nil {
			return err
		}
	}
	return near("the mean loss of the last quarter", lastQuarter(gpu), lastQuarter(cpu), 0.1)
}

func lastQuarter(steps []gpuStep) float64 {
	var losses []float64
	for _, s := range steps[len(steps)*3/4:] {
		losses = append(losses, s.Loss)
	}
	return mean(losses)
}

// typical returns the median time of the second half of the steps, in
// milliseconds.
func typical(steps []gpuStep) float64 {
	var times []float64
	for _, s := range steps[len(steps)/2:] {
		times = append(times, s.Compute+s.Wait)
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// sameLosses returns an error if losses differ in the first steps, or much in
// later steps.
func TestSameLosses(t *testing.T) {
	steps := func(change func(all []gpuStep)) []gpuStep {
		all := make([]gpuStep, 20)
		for i := range all {
			all[i].Loss = 3 / float64(i+1)
		}
		change(all)
		return all
	}
	same := func([]gpuStep) {}
	for want, change := range map[string]func([]gpuStep){
		"":                                 func(all []gpuStep) { all[0].Loss += 5e-4; all[10].Loss = 9 },
		"the loss of step 5":               func(all []gpuStep) { all[5].Loss += 3e-4 },
		"the loss of step 0":               func(all []gpuStep) { all[0].Loss = all[0].Loss / 0 },
		"mean loss of the last quarter is": func(all []gpuStep) { all[19].Loss++ },
	} {
		err := sameLosses(steps(change), steps(same))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if err := sameLosses(steps(same), steps(same)[:6]); err == nil {
		t.Error("different numbers of steps pass")
	}
}
