package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

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

// If workers initialise variables differently, all of them must begin with the
// chief's values.
func TestAllWorkersStartWithChiefsValues(t *testing.T) {
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
		n := step%6 + 1 // more different sizes than graphs that the session keeps
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

func TestChiefReportsWhatItTrains(t *testing.T) {
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
