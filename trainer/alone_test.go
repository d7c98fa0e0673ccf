package trainer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/executor/device/cuda"
	"github.com/plx-run/plx/trainer/executor/gpu"
	"gorgonia.org/tensor"
)

// onGPU gives the only worker of a job a simulated GPU. If updates is true,
// the CPU updates the variables, as it does in jobs with several workers.
func onGPU(t *testing.T, j *Job, updates bool) *Job {
	t.Helper()
	openGPU(t, j, cudatest.Options{Seed: len(t.Name())})
	j.host.updates = updates
	return j
}

// openGPU gives the only worker of a job a simulated GPU.
func openGPU(t *testing.T, j *Job, o cudatest.Options) *cudatest.Driver {
	t.Helper()
	stand := cudatest.Start(t, o)
	g, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	if j.host.device, err = gpu.On(g); err != nil {
		t.Fatal(err)
	}
	if err := j.host.device.ChooseProducts(stand.BLAS); err != nil {
		t.Fatal(err)
	}
	return stand
}

// both runs a training twice on a GPU: the CPU updates the variables in one
// run, and the GPU in the other. It checks that the bits are the same.
func (x trial) both(t *testing.T) {
	t.Helper()
	want, err := x.run(onGPU(t, soloJob(io.Discard), true))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	j := onGPU(t, soloJob(&log), false)
	j.log.level = -8
	got, err := x.run(j)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.same(want); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), ", updates on the gpu") {
		t.Errorf("the start line does not say that the gpu updates:\n%s", &log)
	}
	if want.losses[0] == want.losses[len(want.losses)-1] {
		t.Errorf("the losses are %v", want.losses)
	}
}

// The trained weights must have the same bits whether the GPU or the CPU
// updates the variables. The test covers every optimiser, weight decay,
// schedules and batch norm.
func TestGPUUpdatesHaveSameBitsAsCPUUpdates(t *testing.T) {
	for name, opt := range map[string]Optimizer{
		"sgd": SGD(0.1), "momentum": Momentum(0.1, 0.9).WithDecay(0.01), "nesterov": Nesterov(0.1, 0.8), "adagrad": Adagrad(0.1),
		"adam": Adam(0.01).WithDecoupledDecay(0.02).WithSchedule(func(step int) float64 { return 0.01 / float64(step+1) }),
	} {
		t.Run(name, func(t *testing.T) {
			trial{build: dropoutMLP, feed: classified(60), opt: opt, options: []Option{GlobalBatch(4)}, steps: 3}.both(t)
		})
	}
	t.Run("clipped", func(t *testing.T) {
		trial{build: dropoutMLP, feed: classified(60), opt: Adagrad(0.1), options: []Option{GlobalBatch(4), ClipNorm(0.5)}, steps: 3}.both(t)
	})
	t.Run("measured", func(t *testing.T) {
		trial{build: dropoutMLP, feed: classified(60), opt: SGD(0.1), options: []Option{GlobalBatch(4), MeasureNorm()}, steps: 2}.both(t)
	})
	t.Run("batch norm", func(t *testing.T) {
		trial{build: smallCNN, feed: classified(2, 6, 6), opt: Adam(0.02), options: []Option{GlobalBatch(4)}, steps: 3}.both(t)
	})
	t.Run("scalars", func(t *testing.T) {
		trial{build: func(uint64) Build { return linear }, feed: onALine, opt: Momentum(0.01, 0.5), options: []Option{GlobalBatch(4)}, steps: 6}.both(t)
	})
}

// onALine returns rows of the line y = 2x + 1.
func onALine(step, from, to int) Feed {
	x, y := make([]float64, to-from), make([]float64, to-from)
	for i := range x {
		x[i] = float64(step%3) + float64(from+i)/4
		y[i] = 2*x[i] + 1
	}
	return Feed{"x": dense(tensor.Float32, x, len(x)), "y": dense(tensor.Float32, y, len(y))}
}

// Evaluate, Values and CheckParameters must see the variables that the GPU has
// updated.
func TestEvaluationsAndValuesReadVariablesFromGPU(t *testing.T) {
	var said [2][]string
	for i := range said {
		x := trial{build: dropoutMLP, feed: classified(60), opt: Adam(0.01), options: []Option{GlobalBatch(8)}}
		j := onGPU(t, soloJob(io.Discard), i == 0)
		r, err := j.Parallelize(t.Context(), x.build(1), x.opt, x.options...)
		if err != nil {
			t.Fatal(err)
		}
		for step := range 3 {
			if _, err := r.Step(t.Context(), x.feed(step, 0, 8)); err != nil {
				t.Fatal(err)
			}
			seen, err := r.Evaluate(t.Context(), x.feed(9, 0, 5))
			if err != nil {
				t.Fatal(err)
			}
			values, err := r.Values(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := j.CheckParameters(t.Context()); err != nil {
				t.Error(err)
			}
			said[i] = append(said[i], fmt.Sprint(seen.Loss, seen.Metrics, values["last.b"].Data()))
		}
	}
	for step, want := range said[0] {
		if got := said[1][step]; got != want {
			t.Errorf("after step %d: %s, want %s", step, got, want)
		}
		if step > 0 && want == said[0][step-1] {
			t.Errorf("step %d changes nothing: %s", step, want)
		}
	}
}

// A worker whose GPU updates the variables can resume from a checkpoint of one
// whose CPU does, and vice versa.
func TestCheckpointsMoveBetweenGPUAndCPU(t *testing.T) {
	x := trial{build: smallCNN, feed: classified(2, 6, 6), opt: Adam(0.02), options: []Option{GlobalBatch(4)}, steps: 6}
	want, err := x.run(onGPU(t, soloJob(io.Discard), true))
	if err != nil {
		t.Fatal(err)
	}
	dir, took := t.TempDir(), 0
	for i, updates := range []bool{false, true, false} {
		tj := newTestJob(t, 1, 0, everySteps(dir, 2))
		onGPU(t, tj.jobs[0], updates)
		got, err := x.until(2*(i+1), tj)
		if err != nil {
			t.Fatalf("run %d: %v\n%s", i, err, tj.logs[0])
		}
		for _, loss := range got.losses {
			if !sameBits(loss, want.losses[took]) {
				t.Errorf("run %d: loss %v of step %d, want %v", i, loss, took, want.losses[took])
			}
			took++
		}
		if i == 2 && (took != 6 || got.digest != want.digest) {
			t.Errorf("%d steps and %s, want %s", took, got.digest, want.digest)
		}
	}
}

// A loss of NaN or Inf on a GPU must fail the training as on the CPU, without
// changing a variable.
func TestNonFiniteLossOnGPUEndsTraining(t *testing.T) {
	var said [2]string
	for i := range said {
		j := onGPU(t, soloJob(io.Discard), i == 0)
		r, err := j.Parallelize(t.Context(), linear, SGD(0.01), GlobalBatch(4))
		if err != nil {
			t.Fatal(err)
		}
		for step := range 3 {
			if _, err := r.Step(t.Context(), onALine(step, 0, 4)); err != nil {
				t.Fatal(err)
			}
		}
		before, err := r.variables.digest(t.Context(), 3)
		if err != nil {
			t.Fatal(err)
		}
		bad := onALine(3, 0, 4)
		bad["x"].Data().([]float32)[2] = float32(math.Inf(1))
		_, err = r.Step(t.Context(), bad)
		after, failed := r.variables.digest(t.Context(), 3)
		if err == nil || failed != nil || before != after {
			t.Errorf("%v, %v, %s before and %s after", err, failed, before, after)
		}
		said[i] = fmt.Sprint(err, before)
	}
	if said[0] != said[1] || !strings.Contains(said[0], "not finite") {
		t.Errorf("%s\nwant %s", said[1], said[0])
	}
}

// A label on a GPU that is no valid class must fail the training with the same
// error as on the CPU, without changing a variable.
func TestInvalidLabelOnGPUEndsTraining(t *testing.T) {
	x := trial{build: dropoutMLP, feed: classified(60), opt: Adam(0.01), options: []Option{GlobalBatch(8)}}
	var said []string
	for name, j := range map[string]*Job{"cpu": soloJob(io.Discard), "gpu": onGPU(t, soloJob(io.Discard), false)} {
		r, err := j.Parallelize(t.Context(), x.build(1), x.opt, x.options...)
		if err != nil {
			t.Fatal(err)
		}
		if kept := r.variables.resident != nil; kept != (name == "gpu") {
			t.Fatalf("on the %s the gpu keeps variables: %t", name, kept)
		}
		var digests []string
		digest := func() {
			d, err := r.variables.digest(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			digests = append(digests, d)
		}
		for step := range 3 {
			digest()
			if _, err := r.Step(t.Context(), x.feed(step, 0, 8)); err != nil {
				t.Fatal(err)
			}
		}
		digest()
		bad := x.feed(3, 0, 8)
		bad["y"].Data().([]float32)[2] = 3
		_, err = r.Step(t.Context(), bad)
		if digest(); err == nil || digests[4] != digests[3] || digests[3] == digests[2] {
			t.Errorf("on the %s: %v, digests %q", name, err, digests)
		}
		said = append(said, fmt.Sprint(err))
	}
	if said[0] != said[1] || !strings.Contains(said[0], "row 2 has the label 3, want a class from 0 to 2") {
		t.Errorf("one says %s\nthe other %s", said[0], said[1])
	}
}

// With cuBLAS too, the weights must have the same bits whether the GPU or the
// CPU updates the variables.
func TestGPUUpdatesWithCuBLASHaveSameBits(t *testing.T) {
	x := trial{build: dropoutMLP, feed: classified(60), opt: Adam(0.01), options: []Option{GlobalBatch(8), ClipNorm(0.5)}, steps: 4}
	var done [2]trained
	var products [2]int
	for i := range done {
		j := soloJob(io.Discard)
		stand := openGPU(t, j, cudatest.Options{Seed: 3, BLAS: &cudatest.BLAS{}})
		j.host.updates = i == 0
		var err error
		if done[i], err = x.run(j); err != nil {
			t.Fatal(err)
		}
		products[i] = stand.Products()
	}
	if err := done[1].same(done[0]); err != nil {
		t.Error(err)
	}
	if products[0] == 0 || products[1] != products[0] {
		t.Errorf("cuBLAS computed %d products if the CPU updates, %d if the gpu does", products[0], products[1])
	}
}

// The log line at the start gives the reason if the CPU updates the variables
// that a GPU computes with.
func TestReportSaysWhyCPUUpdatesVariables(t *testing.T) {
	for _, c := range []struct {
		settings []Setting
		options  []Option
		build    Build
		want     string
	}{
		{nil, nil, linear, "updates on the gpu"},
		{nil, []Option{ClipNorm(1)}, linear, "updates on the gpu"},
		{[]Setting{VirtualWorkers(2)}, nil, linear, "updates on the CPU: gradients of 2 virtual workers are added"},
		{[]Setting{flags(func(c *config.Config) { c.CheckNumerics = true })}, nil, linear, "updates on the CPU: --check-numerics looks at every gradient"},
		{nil, nil, words(1), "updates on the CPU: the model has embeddings"},
	} {
		var log bytes.Buffer
		j := onGPU(t, soloJob(&log, c.settings...), false)
		j.log.level = -8
		r, err := j.Parallelize(context.Background(), c.build, SGD(0.1), append(c.options, GlobalBatch(4))...)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.close(nil); err != nil {
			t.Error(err)
		}
		if !strings.Contains(log.String(), c.want) {
			t.Errorf("want %q:\n%s", c.want, &log)
		}
	}
}

// Evaluations with many numbers of rows build many graphs, whose GPU memory
// must be freed.
func TestEvaluationsFreeGPUMemory(t *testing.T) {
	x := trial{build: dropoutMLP, feed: classified(60), opt: SGD(0.1), options: []Option{GlobalBatch(4)}}
	j := onGPU(t, soloJob(io.Discard), false)
	s, err := j.Parallelize(t.Context(), x.build(1), x.opt, x.options...)
	if err != nil {
		t.Fatal(err)
	}
	least := uint64(0)
	for rows := 1; rows <= 20; rows++ {
		if _, err := s.Evaluate(t.Context(), x.feed(9, 0, rows)); err != nil {
			t.Fatal(err)
		}
		free, err := j.host.device.Available()
		if err != nil {
			t.Fatal(err)
		}
		if rows == 4 { // the session keeps the graphs of the last four evaluations, here the smallest
			least = free
		}
		if taken := int64(least) - int64(free); rows > 8 && taken > 256<<10 {
			t.Fatalf("%d bytes more are taken after evaluations of %d sizes than after 4", taken, rows)
		}
	}
}
