package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// counted returns a regression with recurrent state: each row of input "sum"
// holds the sum of that row of input "add" over all earlier steps. The fetch
// "sum" returns the value at the beginning of the step.
func counted(g *gorgonia.ExprGraph, batch int) (Model, error) {
	m, err := regression{}.build(g, batch)
	add := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("add"), gorgonia.WithShape(batch, 2))
	sum := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("sum"), gorgonia.WithShape(batch, 2))
	m.Inputs = append(gorgonia.Nodes{sum, add}, m.Inputs...) // the first input gives an evaluation's number of rows, and "sum" is not fed
	m.Carried = map[string]*gorgonia.Node{"sum": gorgonia.Must(gorgonia.Add(sum, add))}
	m.Fetches["sum"] = gorgonia.Must(gorgonia.Add(sum, gorgonia.NewConstant(0.0)))
	return m, err
}

// countedFeed returns the feed of a step. Row r of "add" is 100*step+r.
func countedFeed(step, from, to int) Feed {
	f := regression{}.feed(step, from, to)
	var add []float64
	for row := from; row < to; row++ {
		add = append(add, 0, float64(100*step+row))
	}
	f["add"] = dense(tensor.Float64, add, to-from, 2)
	return f
}

// sums returns the second column of a fetch, over all virtual workers of a
// worker.
func sums(values []gorgonia.Value) (all []float64) {
	for _, v := range values {
		for i, x := range v.Data().([]float64) {
			if i%2 == 1 {
				all = append(all, x)
			}
		}
	}
	return all
}

// countSteps trains and checks in each step that the state is the sum of "add"
// over the steps from since on.
func countSteps(ctx context.Context, j *Job, steps, since int) error {
	s, err := j.Parallelize(ctx, counted, SGD(0.1), Config{GlobalBatch: 12})
	if err != nil {
		return err
	}
	from, to := s.Rows()
	for r, err := range s.Train(ctx, steps, func(step int) (Feed, error) { return countedFeed(step, from, to), nil }) {
		if err != nil {
			return err
		}
		var want []float64
		for row := from; row < to; row++ {
			x := 0.0
			for step := since; step < r.Step; step++ {
				x += float64(100*step + row)
			}
			want = append(want, x)
		}
		if got := sums(r.Fetches["sum"]); !slices.Equal(got, want) {
			return fmt.Errorf("step %d, rows [%d, %d): %v, want %v", r.Step, from, to, got, want)
		}
	}
	return nil
}

// Recurrent state must stay with its rows of the batch: across replicas,
// checkpoints and different numbers of workers.
func TestRecurrentStateFollowsItsRows(t *testing.T) {
	dir := t.TempDir()
	for i, workers := range []int{3, 2, 6, 1, 4} {
		tj := newTestJobOn(t, hostNames(workers), i%2, Config{VirtualWorkers: 12, ParallelReplicas: 2, Arch: []string{"allreduce", "ps"}[i%2]}, everySteps(dir, 3))
		steps := 5 * (i + 1)
		errs := tj.end(func(ctx context.Context, j *Job) error { return countSteps(ctx, j, steps, 0) })
		if err := errors.Join(append(errs, tj.wait())...); err != nil {
			t.Fatalf("%d workers: %v\n%s", workers, err, tj.logs[0])
		}
		if got := tj.jobs[0].session.Load().Steps(); got != steps {
			t.Fatalf("%d workers: %d steps, want %d", workers, got, steps)
		}
	}
}

// Recurrent state also works in modes other than sync. Their checkpoints do
// not contain it, and a resumed training logs that.
func TestRecurrentStateRestartsFromZeroOutOfSync(t *testing.T) {
	dir := t.TempDir()
	for i, since := range []int{0, 4} {
		tj := newTestJobOn(t, hostNames(2), 1, Config{Sync: "async"}, everySteps(dir, 2))
		errs := tj.end(func(ctx context.Context, j *Job) error { return countSteps(ctx, j, 4*(i+1), since) })
		if err := errors.Join(append(errs, tj.wait())...); err != nil {
			t.Fatalf("run %d: %v\n%s", i, err, tj.logs[0])
		}
		if said := strings.Contains(tj.logs[0].String(), `has no state of input "sum": it begins with zeros`); said != (i == 1) {
			t.Errorf("run %d: %s", i, tj.logs[0])
		}
	}
}

// A feed may replace the recurrent state. An evaluation neither reads nor
// changes it.
func TestFeedReplacesRecurrentState(t *testing.T) {
	s, err := soloJob(io.Discard, Replicas(2)).Parallelize(t.Context(), counted, SGD(0.1), Config{GlobalBatch: 2})
	if err != nil {
		t.Fatal(err)
	}
	set := dense(tensor.Float64, []float64{0, 7, 0, 8}, 2, 2)
	for step, want := range [][]float64{{0, 0}, {0, 1}, {7, 8}, {207, 209}} {
		feed := countedFeed(step, 0, 2)
		if step == 2 {
			feed["sum"] = set
		}
		r, err := s.Step(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if got := sums(r.Fetches["sum"]); !slices.Equal(got, want) {
			t.Errorf("step %d begins with %v, want %v", step, got, want)
		}
		feed = countedFeed(step, 0, 3)
		if r, err = s.Evaluate(t.Context(), feed); err != nil || !slices.Equal(sums(r.Fetches["sum"]), make([]float64, 3)) || feed["sum"] != nil {
			t.Errorf("the evaluation begins with %v, %v", sums(r.Fetches["sum"]), err)
		}
	}
	if !slices.Equal(set.Data().([]float64), []float64{0, 7, 0, 8}) {
		t.Errorf("the program's tensor is now %v", set)
	}
}

// Parallelize must reject invalid entries of Model.Carried.
func TestInvalidRecurrentStateIsRefused(t *testing.T) {
	for want, spoil := range map[string]func(g *gorgonia.ExprGraph, m *Model){
		`carried "state": the model has no such input`: func(_ *gorgonia.ExprGraph, m *Model) { m.Carried["state"] = m.Carried["sum"] },
		`carried "sum": the node is nil`:               func(_ *gorgonia.ExprGraph, m *Model) { m.Carried["sum"] = nil },
		`carried "sum": the input is float64 of shape (2, 2), but the value for the next step is float64 of shape (2, 1)`: func(_ *gorgonia.ExprGraph, m *Model) {
			m.Carried["sum"] = m.Fetches["guess"]
		},
		`carried "one": shape (3): want 2 rows first, one for each row of the batch`: func(g *gorgonia.ExprGraph, m *Model) {
			one := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("one"), gorgonia.WithShape(3))
			m.Inputs, m.Carried["one"] = append(m.Inputs, one), gorgonia.Must(gorgonia.Square(one))
		},
		`carried "index": the input is int64, want float32 or float64`: func(g *gorgonia.ExprGraph, m *Model) {
			index := gorgonia.NewVector(g, tensor.Int64, gorgonia.WithName("index"), gorgonia.WithShape(2))
			m.Inputs, m.Carried["index"] = append(m.Inputs, index), index
		},
	} {
		_, err := soloJob(io.Discard).Parallelize(t.Context(), func(g *gorgonia.ExprGraph, batch int) (Model, error) {
			m, err := counted(g, batch)
			spoil(g, &m)
			return m, err
		}, SGD(0.1), Config{GlobalBatch: 2})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// If the recurrent state in a checkpoint has another shape than in the model,
// the error names the input.
func TestRecurrentStateOfAnotherShapeIsRefused(t *testing.T) {
	dir := t.TempDir()
	for i, width := range []int{2, 3} {
		tj := newTestJobOn(t, hostNames(1), 1, everySteps(dir, 1))
		errs := tj.end(func(ctx context.Context, j *Job) error {
			s, err := j.Parallelize(ctx, func(g *gorgonia.ExprGraph, batch int) (Model, error) {
				m, err := regression{}.build(g, batch)
				state := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("state"), gorgonia.WithShape(batch, width))
				m.Inputs, m.Carried = append(m.Inputs, state), map[string]*gorgonia.Node{"state": gorgonia.Must(gorgonia.Square(state))}
				return m, err
			}, SGD(0.1), Config{GlobalBatch: 2})
			if err != nil {
				return err
			}
			_, err = s.Step(ctx, regression{}.feed(0, 0, 2))
			return err
		})
		switch err := errors.Join(errs...); {
		case i == 0 && err != nil:
			t.Fatal(err)
		case i == 1 && (err == nil || !strings.Contains(err.Error(), `carried "state": checkpoint `) || !strings.Contains(err.Error(), "of shape (2, 2), the program float64 of shape (2, 3)")):
			t.Errorf("got %v", err)
		}
	}
}
