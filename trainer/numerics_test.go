package trainer

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/replica"
	"github.com/plx-run/plx/trainer/wire"
)

// roots builds a model whose loss is the mean of the square roots of x·w. If
// x·w is 0, the loss is finite but the gradient is not.
func roots(g *gorgonia.ExprGraph, batch int) (Model, error) {
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(batch, 3))
	w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("w"), gorgonia.WithShape(3, 1), gorgonia.WithInit(gorgonia.Ones()))
	v := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("v"), gorgonia.WithShape(1, 2), gorgonia.WithInit(gorgonia.Ones()))
	h := gorgonia.Must(gorgonia.Sqrt(gorgonia.Must(gorgonia.Mul(x, w))))
	loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Mul(h, v))))
	return Model{Inputs: gorgonia.Nodes{x}, Variables: gorgonia.Nodes{w, v}, Loss: loss}, nil
}

// rootFeed returns a feed in which only row badRow of step badStep is bad.
// Other rows have equal features, so that all elements of w stay equal; with a
// row (1, -1, 0), x·w is then 0.
func rootFeed(step, from, to, badStep, badRow int, bad []float64) Feed {
	var x []float64
	for row := from; row < to; row++ {
		if step == badStep && row == badRow {
			x = append(x, bad...)
			continue
		}
		v := 1 + float64(row%5)
		x = append(x, v, v, v)
	}
	return Feed{"x": dense(tensor.Float32, x, to-from, 3)}
}

// NaN or Inf must fail the training on all workers without a hang. The error
// says which value it is, and on which worker and in which step.
func TestNonFiniteNumbersAreNamed(t *testing.T) {
	zero := []float64{1, -1, 0}
	for _, c := range []struct {
		name  string
		check bool
		bad   []float64
		words []string // words in one worker's error, besides those that all errors contain
	}{
		{"a loss of NaN", false, []float64{1, math.NaN(), 1}, []string{"the loss (NaN)", `the gradient of "w"`, "step 3"}},
		{"a loss of Inf", false, []float64{math.Inf(1), 1, 1}, []string{"the loss (+Inf)", "step 3"}},
		{"a gradient", true, zero, []string{`the gradient of "w"`, "not finite", "step 3"}},
		{"a gradient, noticed late", false, zero, []string{"the loss (NaN)", `before the step variable "w"`, "step 4"}},
	} {
		for _, at := range layouts[1:] {
			t.Run(c.name+" "+at.arch, func(t *testing.T) {
				tj := newTestJob(t, 3, at.servers, Arch(at.arch), VirtualWorkers(6), flags(func(f *config.Config) { f.CheckNumerics = c.check }))
				ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
				defer cancel()
				errs := tj.all(func(j *Job) error {
					r, err := j.Parallelize(ctx, roots, SGD(0.001), GlobalBatch(24))
					if err != nil {
						return err
					}
					from, to := r.Rows()
					for step := 0; err == nil && step < 8; step++ { // row 14 belongs to virtual worker 3, which worker:1 computes
						_, err = r.Step(ctx, rootFeed(step, from, to, 3, 14, c.bad))
					}
					return err
				})
				late := strings.Contains(c.name, "late") // in these cases all workers find the value
				for rank, err := range errs {
					words := c.words
					if !late {
						words = append([]string{"virtual worker 3 of worker:1"}, words...)
					}
					for _, word := range words {
						if err == nil || !strings.Contains(err.Error(), word) {
							t.Errorf("worker:%d: %v; want %q", rank, err, word)
						}
					}
				}
				var helpful interface{ Hint() string }
				if culprit := errors.Join(errs...); !errors.As(culprit, &helpful) || !strings.Contains(helpful.Hint(), "--check-numerics") {
					t.Errorf("no hint: %v", culprit)
				}
				if !c.check {
					return
				}
				for rank, j := range tj.jobs {
					r := j.session.Load()
					for i, memory := range r.training.group.Memory() {
						if slices.ContainsFunc(wire.Floats[float32](memory), func(x float32) bool { return !replica.Finite(float64(x)) }) {
							t.Errorf("worker:%d: the bad gradient has travelled to variable %d", rank, i)
						}
					}
				}
			})
		}
	}
}

// Rows of an embedding must be checked for NaN and Inf too.
func TestNonFiniteRowsAreNamed(t *testing.T) {
	j := soloJob(&strings.Builder{}, flags(func(f *config.Config) { f.CheckNumerics = true }))
	build := func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		table := &Embedding{Name: "table", Rows: 4, Width: 2}
		rows, err := table.Lookup(g, "row", batch)
		if err != nil {
			return Model{}, err
		}
		loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Sqrt(rows)))) // of zeros
		return Model{Embeddings: []*Embedding{table}, Loss: loss}, nil
	}
	r, err := j.Parallelize(t.Context(), build, SGD(0.1), GlobalBatch(2))
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Step(t.Context(), Feed{"row": tensor.New(tensor.WithShape(2), tensor.WithBacking([]int{0, 3}))})
	if err == nil || !strings.Contains(err.Error(), `the gradient of "row" (rows of "table")`) || !strings.Contains(err.Error(), "virtual worker 0 of worker:0") {
		t.Errorf("got %v", err)
	}
}
