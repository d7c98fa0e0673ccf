package trainer

import (
	"fmt"
	"math"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// line builds the model y = x·w with one number per row.
func line(g *gorgonia.ExprGraph, rows int) (Model, error) {
	vector := func(name string) *gorgonia.Node {
		return gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName(name), gorgonia.WithShape(rows))
	}
	x, y := vector("x"), vector("y")
	w := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("w"), gorgonia.WithShape(1), gorgonia.WithInit(gorgonia.Ones()))
	guess := gorgonia.Must(gorgonia.HadamardProd(x, gorgonia.Must(gorgonia.Sum(w))))
	loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(guess, y))))))
	return Model{Inputs: gorgonia.Nodes{x, y}, Variables: gorgonia.Nodes{w}, Loss: loss}, nil
}

// A worker with a single row may feed a slice of one number, to which
// tensor.New gives shape ().
func TestWorkerWithOneRow(t *testing.T) {
	x, y := []float64{1, 2, 3}, []float64{2, 5, 9}
	tj := newTestJob(t, 3, 0)
	for i, err := range tj.all(func(j *Job) error {
		s, err := j.Parallelize(t.Context(), line, SGD(0.01), GlobalBatch(3))
		if err != nil {
			return err
		}
		from, to := s.Rows()
		feed := Feed{"x": tensor.New(tensor.WithBacking(x[from:to])), "y": tensor.New(tensor.WithBacking(y[from:to]))}
		if shape := feed["x"].Shape(); len(shape) != 0 {
			return fmt.Errorf("the test has shape %v", shape)
		}
		result, err := s.Step(t.Context(), feed)
		if err != nil {
			return err
		}
		if want := (1.0 + 9 + 36) / 3; math.Abs(result.Loss-want) > 1e-12 {
			return fmt.Errorf("loss %v, want the mean over the rows, %v", result.Loss, want)
		}
		_, err = s.Evaluate(t.Context(), feed)
		return err
	}) {
		if err != nil {
			t.Errorf("worker %d: %v", i, err)
		}
	}
}
