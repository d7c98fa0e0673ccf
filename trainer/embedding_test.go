package trainer

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/plx-run/plx/trainer/config"
)

// lookupOf returns a model that trains only a table: the loss is the mean of
// the squared differences between looked-up rows and a target.
func lookupOf(table func() *Embedding, n int) Build {
	return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		e := table()
		rows, err := e.Lookup(g, "row", batch*n)
		if err != nil {
			return Model{}, err
		}
		target := gorgonia.NewMatrix(g, e.dtype(), gorgonia.WithName("target"), gorgonia.WithShape(batch*n, e.Width))
		loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(rows, target))))))
		return Model{Inputs: gorgonia.Nodes{target}, Embeddings: []*Embedding{e}, Loss: loss}, nil
	}
}

// A table must have the same initial values as a dense variable of the same
// name, seed and shape, whichever tasks hold its rows.
func TestTableHasInitialValuesOfADenseVariable(t *testing.T) {
	const rows, width = 41, 5
	for name, c := range map[string]struct {
		first RowInit
		dense gorgonia.InitWFn
	}{
		"uniform": {UniformRows(3, -0.25, 0.5), Uniform(3, "table", -0.25, 0.5)},
		"normal":  {NormalRows(3, 1, 2), Normal(3, "table", 1, 2)},
		"zeros":   {RowInit{}, Zeros()},
	} {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			for i, at := range append(layouts, architecture{"hybrid", 3}) {
				if (i%2 == 0) != (dt == tensor.Float32) {
					continue
				}
				tj := newTestJob(t, 3, at.servers, Arch(at.arch), flags(func(c *config.Config) { c.PartitionBytes = 200 }))
				errs := tj.all(func(j *Job) error {
					table := func() *Embedding {
						return &Embedding{Name: "table", Rows: rows, Width: width, Dtype: dt, First: c.first}
					}
					r, err := j.Parallelize(t.Context(), lookupOf(table, 2), SGD(0.1), GlobalBatch(3))
					if err != nil {
						return err
					}
					if n := r.Parameters(); n != rows*width {
						t.Errorf("%s: %d parameters, want %d", name, n, rows*width)
					}
					values, err := r.Values(t.Context())
					if err != nil {
						return err
					}
					if got, want := fmt.Sprint(values["table"].Data()), fmt.Sprint(c.dense(dt, rows, width)); got != want {
						return fmt.Errorf("begins with %.80s, a dense variable with %.80s", got, want)
					}
					return nil
				})
				if err := errors.Join(errs...); err != nil {
					t.Errorf("%s, %v, %v: %v", name, dt, at, err)
				}
			}
		}
	}
}

// rowsOf trains a table of 12 rows, of 3 elements each. In each step it looks
// up the rows in one element of batches. It returns the table after each step.
func rowsOf(t *testing.T, tj *testJob, opt Optimizer, batches [][]int) [][]float32 {
	t.Helper()
	after := make([][]float32, len(batches))
	table := func() *Embedding { return &Embedding{Name: "table", Rows: 12, Width: 3, First: UniformRows(5, -1, 1)} }
	errs := tj.all(func(j *Job) error {
		r, err := j.Parallelize(t.Context(), lookupOf(table, 2), opt, GlobalBatch(3))
		if err != nil {
			return err
		}
		from, to := r.Rows()
		for step, all := range batches {
			index := all[2*from : 2*to]
			target := make([]float32, 3*len(index))
			for i := range target { // a row has the same target in every step, whatever other rows are looked up
				target[i] = float32(index[i/3]) / 8
			}
			feed := Feed{"row": tensor.New(tensor.WithShape(len(index)), tensor.WithBacking(slices.Clone(index))),
				"target": tensor.New(tensor.WithShape(len(index), 3), tensor.WithBacking(target))}
			if _, err := r.Step(t.Context(), feed); err != nil {
				return err
			}
			values, err := r.Values(t.Context())
			if err != nil {
				return err
			}
			if j.IsChief() {
				after[step] = values["table"].Data().([]float32)
			}
			if err := j.Barrier(t.Context()); err != nil { // no worker takes the next step while the chief reads the table
				return err
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return after
}

// A row that no worker looks up must keep its bits, even with weight decay.
// The optimiser's state for that row must not change either, whichever other
// rows are trained.
func TestOnlyLookedUpRowsChange(t *testing.T) {
	untouched := []int{0, 3, 11}
	for name, opt := range map[string]Optimizer{
		"sgd": SGD(0.1), "momentum": Momentum(0.1, 0.9), "adagrad": Adagrad(0.1), "adam": Adam(0.1),
		"adamw": Adam(0.1).WithDecoupledDecay(0.1), "decay": Momentum(0.1, 0.9).WithDecay(0.1),
	} {
		for _, at := range layouts {
			batches := [][]int{{1, 2, 2, 4, 5, 1}, {9, 4, 4, 4, 9, 7}, {1, 1, 10, 8, 6, 2}}
			after := rowsOf(t, newTestJob(t, 3, at.servers, Arch(at.arch)), opt, batches)
			before := Uniform(5, "table", -1, 1)(tensor.Float32, 12, 3).([]float32)
			for step, now := range after {
				for row := range 12 {
					same := slices.Equal(before[3*row:3*row+3], now[3*row:3*row+3])
					if touched := slices.Contains(batches[step], row); same == touched {
						t.Errorf("%s, %v, step %d: row %d: touched %t, same bits %t", name, at, step, row, touched, same)
					}
				}
				before = now
			}
			for _, row := range untouched {
				want := Uniform(5, "table", -1, 1)(tensor.Float32, 12, 3).([]float32)[3*row : 3*row+3]
				if got := before[3*row : 3*row+3]; !slices.Equal(got, want) {
					t.Errorf("%s, %v: row %d is %v, began as %v", name, at, row, got, want)
				}
			}
		}
	}
}

// Rows 1 and 2 are trained in steps 0 and 2. The training of other rows in
// step 1 must not change the moments of rows 1 and 2. Adam counts steps rather
// than updates of a row, so its count is the same in both runs.
func TestOptimizerStateOfOtherRowsStays(t *testing.T) {
	for name, opt := range map[string]Optimizer{"momentum": Momentum(0.1, 0.9), "adagrad": Adagrad(0.1), "adam": Adam(0.1)} {
		one := rowsOf(t, newTestJob(t, 3, 2, Arch("ps")), opt, [][]int{{1, 2, 2, 1, 1, 2}, {5, 6, 7, 8, 9, 10}, {1, 2, 2, 1, 1, 2}})
		two := rowsOf(t, newTestJob(t, 1, 0), opt, [][]int{{1, 2, 2, 1, 1, 2}, {3, 3, 3, 4, 4, 11}, {1, 2, 2, 1, 1, 2}})
		for _, row := range []int{1, 2} {
			a, b := one[2][3*row:3*row+3], two[2][3*row:3*row+3]
			for k := range a { // compare with a tolerance, because one process adds in another order
				if !nearly(a[k], b[k]) {
					t.Errorf("%s: row %d is %v, where others were trained meanwhile %v", name, row, b, a)
					break
				}
			}
		}
		same := rowsOf(t, newTestJob(t, 3, 0, Arch("allreduce")), opt, [][]int{{1, 2, 2, 1, 1, 2}, {3, 3, 3, 4, 4, 11}, {1, 2, 2, 1, 1, 2}})
		if !slices.Equal(same[2][3:9], one[2][3:9]) {
			t.Errorf("%s: rows 1 and 2 are %v, where others were trained meanwhile %v", name, one[2][3:9], same[2][3:9])
		}
	}
}

func nearly(a, b float32) bool { return max(a-b, b-a) < 1e-5 }

// A model may look up a table several times, under several names. The
// gradients for the same row add up.
func TestGradientsOfTwoLookupsAddUp(t *testing.T) {
	build := func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		e := &Embedding{Name: "table", Rows: 4, Width: 1, Dtype: tensor.Float64}
		a, err := e.Lookup(g, "a", batch)
		b, err2 := e.Lookup(g, "b", batch)
		if err := errors.Join(err, err2); err != nil {
			return Model{}, err
		}
		twice := gorgonia.Must(gorgonia.Add(b, b))
		return Model{Embeddings: []*Embedding{e}, Loss: gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Add(a, twice)))), LossKind: Sum}, nil
	}
	r, err := soloJob(io.Discard, Replicas(2)).Parallelize(t.Context(), build, SGD(1), GlobalBatch(4))
	if err != nil {
		t.Fatal(err)
	}
	index := func(x ...int32) tensor.Tensor { return tensor.New(tensor.WithShape(len(x)), tensor.WithBacking(x)) }
	if _, err := r.Step(t.Context(), Feed{"a": index(0, 0, 1, 0), "b": index(1, 0, 3, 3)}); err != nil {
		t.Fatal(err)
	}
	values, err := r.Values(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := allNear("table", values["table"].Data().([]float64), []float64{-5, -3, 0, -4}); err != nil {
		t.Error(err)
	}
}
