package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/peers"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

const testBatch, testSteps = 12, 50

// trainMLP trains on this worker's slice of every batch and returns what came
// of it.
func trainMLP(j *Job, dt tensor.Dtype, kind LossKind, opt Optimizer) (losses []float64, values map[string]*tensor.Dense, err error) {
	ctx := context.Background()
	r, err := j.Parallelize(ctx, mlp(dt, kind, 8, 6, 3), opt, GlobalBatch(testBatch))
	if err != nil {
		return nil, nil, err
	}
	from, to := r.Rows()
	for step := range testSteps {
		result, err := r.Step(ctx, rows(dt, step, from, to, 8, 3))
		if err != nil {
			return nil, nil, err
		}
		losses = append(losses, result.Loss)
	}
	values, err = r.Values(ctx)
	return losses, values, err
}

// The promise of synchronous training: after 50 steps any number of workers
// and servers has the variables of one process on the whole batch.
func TestWorkersEqualOneProcess(t *testing.T) {
	falling := func(step int) float64 { return 0.3 * (1 - 0.7*float64(step)/testSteps) }
	for _, c := range []struct {
		name string
		opt  Optimizer
		kind LossKind
		dt   tensor.Dtype
	}{
		{"sgd", SGD(0).WithSchedule(falling), Mean, tensor.Float32},
		{"sgd sum", SGD(0.02), Sum, tensor.Float32},
		{"momentum", Momentum(0.1, 0.9), Mean, tensor.Float32},
		{"adagrad", Adagrad(0.1), Mean, tensor.Float32},
		{"adam", Adam(0.01), Mean, tensor.Float64},
	} {
		t.Run(c.name, func(t *testing.T) {
			one := soloJob(io.Discard)
			wantLosses, want, err := trainMLP(one, c.dt, c.kind, c.opt)
			if err != nil {
				t.Fatal(err)
			}
			if first, last := wantLosses[0], wantLosses[testSteps-1]; !(last < 0.8*first) {
				t.Errorf("the loss went from %v to %v: nothing was learnt", first, last)
			}
			for _, workers := range []int{1, 2, 3, 4} {
				for servers := 1; servers <= 3; servers++ {
					tj := newTestJob(t, workers, servers, Arch("ps"))
					for rank, err := range tj.all(func(j *Job) error {
						losses, values, err := trainMLP(j, c.dt, c.kind, c.opt)
						if err != nil {
							return err
						}
						return errors.Join(closeTo(values, want), closeLosses(losses, wantLosses))
					}) {
						if err != nil {
							t.Errorf("%d workers, %d servers: worker:%d: %v", workers, servers, rank, err)
						}
					}
					for i, served := range tj.served {
						if err := <-served; err != nil {
							t.Errorf("ps:%d: %v", i, err)
						}
					}
				}
			}
		})
	}
}

func closeTo(got, want map[string]*tensor.Dense) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d variables, want %d", len(got), len(want))
	}
	for name, w := range want {
		for i := range w.Shape().TotalSize() {
			a, b := float(got[name].Get(i)), float(w.Get(i))
			if !(math.Abs(a-b) <= 1e-5) {
				return fmt.Errorf("%s[%d] is %v, one process has %v", name, i, a, b)
			}
		}
	}
	return nil
}

func float(x any) float64 {
	if v, ok := x.(float32); ok {
		return float64(v)
	}
	return x.(float64)
}

func closeLosses(got, want []float64) error {
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= 1e-4*(1+math.Abs(want[i]))) {
			return fmt.Errorf("loss at step %d is %v, one process has %v", i, got[i], want[i])
		}
	}
	return nil
}

// Scalars are variables too.
func TestLinearRegressionFindsTheLine(t *testing.T) {
	tj := newTestJob(t, 2, 2)
	for rank, err := range tj.all(func(j *Job) error {
		r, err := j.Parallelize(context.Background(), linear, SGD(0.1), GlobalBatch(8))
		if err != nil {
			return err
		}
		for step := range 200 {
			var x, y []float64
			for i := range 4 {
				v := math.Sin(float64(step*8 + j.WorkerID()*4 + i))
				x, y = append(x, v), append(y, 3*v-1)
			}
			if _, err := r.Step(context.Background(), Feed{"x": dense(tensor.Float32, x, 4), "y": dense(tensor.Float32, y, 4)}); err != nil {
				return err
			}
		}
		values, err := r.Values(context.Background())
		if err != nil {
			return err
		}
		w, b := float(values["w"].Data()), float(values["b"].Data())
		if math.Abs(w-3) > 1e-3 || math.Abs(b+1) > 1e-3 {
			return fmt.Errorf("found y = %v x + %v", w, b)
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("worker:%d: %v", rank, err)
		}
	}
}

// Workers that initialise differently all begin with the chief's values.
func TestEverybodyStartsFromTheChief(t *testing.T) {
	tj := newTestJob(t, 3, 2)
	firsts := make([]map[string]*tensor.Dense, 3)
	for rank, err := range tj.all(func(j *Job) error {
		build := func(g *gorgonia.ExprGraph, batch int) (Model, error) {
			m, err := mlp(tensor.Float32, Mean, 8, 3)(g, batch)
			own := Uniform(uint64(j.WorkerID()), "w0", 1, 2)(tensor.Float32, 8, 3)
			return m, errors.Join(err, gorgonia.Let(m.Variables[0], tensor.New(tensor.WithShape(8, 3), tensor.WithBacking(own))))
		}
		r, err := j.Parallelize(context.Background(), build, SGD(0.1), GlobalBatch(3))
		if err != nil {
			return err
		}
		firsts[j.WorkerID()], err = r.Values(context.Background())
		return err
	}) {
		if err != nil {
			t.Fatalf("worker:%d: %v", rank, err)
		}
	}
	want := Uniform(0, "w0", 1, 2)(tensor.Float32, 8, 3).([]float32)
	for rank, first := range firsts {
		for i, v := range first["w0"].Data().([]float32) {
			if v != want[i] {
				t.Fatalf("worker:%d: element %d is %v, the chief began with %v", rank, i, v, want[i])
			}
		}
	}
}

func TestEvaluateTakesAnyBatchAndChangesNothing(t *testing.T) {
	j := soloJob(io.Discard)
	ctx := context.Background()
	r, err := j.Parallelize(ctx, mlp(tensor.Float32, Mean, 8, 6, 3), SGD(0.1), GlobalBatch(4))
	if err != nil {
		t.Fatal(err)
	}
	for step := range 8 {
		before, err := r.Values(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		n := step%6 + 1 // more sizes than are kept
		result, err := r.Evaluate(ctx, rows(tensor.Float32, step, 0, n, 8, 3))
		if err != nil {
			t.Fatal(err)
		}
		if got := result.Fetches["logits"][0].Shape(); !got.Eq(tensor.Shape{n, 3}) {
			t.Errorf("logits of %d rows have shape %v", n, got)
		}
		after, err := r.Values(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := closeTo(after, before); err != nil {
			t.Errorf("evaluation changed a variable: %v", err)
		}
		whole, err := r.Evaluate(ctx, rows(tensor.Float32, step, 0, 4, 8, 3))
		if err != nil {
			t.Fatal(err)
		}
		stepped, err := r.Step(ctx, rows(tensor.Float32, step, 0, 4, 8, 3))
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(stepped.Loss-whole.Loss) > 1e-6 {
			t.Errorf("step %d: loss %v in training, %v in evaluation", step, stepped.Loss, whole.Loss)
		}
	}
}

func TestDyingWorkerEndsTheOthersStep(t *testing.T) {
	tj := newTestJob(t, 3, 2)
	dead := errors.New("out of memory")
	errs := tj.all(func(j *Job) error {
		r, err := j.Parallelize(context.Background(), mlp(tensor.Float32, Mean, 8, 3), SGD(0.1), GlobalBatch(6))
		for step := 0; err == nil; step++ {
			if j.WorkerID() == 2 && step == 5 {
				return dead
			}
			_, err = r.Step(context.Background(), rows(tensor.Float32, step, 0, 2, 8, 3))
		}
		return err
	})
	for rank, err := range errs[:2] {
		var peer *peers.PeerError
		if !errors.As(err, &peer) || peer.Task.String() != "worker:2" || !strings.Contains(err.Error(), dead.Error()) {
			t.Errorf("worker:%d: %v", rank, err)
		}
	}
}

func TestDifferentModelsAreRefused(t *testing.T) {
	tj := newTestJob(t, 2, 1)
	for rank, err := range tj.all(func(j *Job) error {
		_, err := j.Parallelize(context.Background(), mlp(tensor.Float32, Mean, 8, 4+j.WorkerID(), 3), SGD(0.1), GlobalBatch(6))
		return err
	}) {
		if err == nil || !strings.Contains(err.Error(), `variable "w0" has shape [8 5], not [8 4]`) {
			t.Errorf("worker:%d: %v", rank, err)
		}
	}
}

func TestChiefSaysWhatItTrains(t *testing.T) {
	tj := newTestJob(t, 2, 2)
	tj.all(func(j *Job) error {
		_, err := j.Parallelize(context.Background(), mlp(tensor.Float32, Mean, 8, 6, 3), Adagrad(0.1), GlobalBatch(6))
		return err
	})
	want := "plx: verbose: 2 workers, allreduce (no sparse variable), sync, batch 6 (3 rows each), 2 variables of 264 B, adagrad, loss mean, gonum\n" +
		"plx: verbose: variable \"w0\" [8 6]: dense, 192 B, on worker:0\n" +
		"plx: verbose: variable \"w1\" [6 3]: dense, 72 B, on worker:0\n"
	if got := tj.logs[0].String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := tj.logs[1].String(); got != "" {
		t.Errorf("worker:1 says %q", got)
	}
}

func BenchmarkStep(b *testing.B) {
	for _, workers := range []int{0, 1, 2} {
		name := fmt.Sprintf("%d workers", workers)
		if workers == 0 {
			name = "alone"
		}
		b.Run(name, func(b *testing.B) {
			tj := newTestJob(b, max(workers, 1), workers)
			sessions := make([]*Session, len(tj.jobs))
			var starting sync.WaitGroup
			for i, j := range tj.jobs {
				starting.Go(func() {
					var err error
					sessions[i], err = j.Parallelize(context.Background(), mlp(tensor.Float32, Mean, 1024, 256, 256, 256, 32), SGD(0.1), GlobalBatch(64))
					if err != nil {
						b.Error(err)
					}
				})
			}
			starting.Wait()
			feed := rows(tensor.Float32, 0, 0, 64/len(sessions), 1024, 32)
			b.ReportAllocs()
			began := time.Now()
			for b.Loop() {
				var stepping sync.WaitGroup
				for _, r := range sessions {
					stepping.Go(func() {
						if _, err := r.Step(context.Background(), feed); err != nil {
							b.Error(err)
						}
					})
				}
				stepping.Wait()
			}
			b.ReportMetric(float64(time.Since(began).Milliseconds())/float64(b.N), "ms/step")
		})
	}
}
