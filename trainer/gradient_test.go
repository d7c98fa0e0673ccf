package trainer

import (
	"errors"
	"math"
	"testing"

	"github.com/plx-run/plx/trainer/operation"

	"github.com/plx-run/plx/trainer/replica"
	"github.com/plx-run/plx/trainer/wire"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// checkGradients compares every gradient of a float64 model with central
// finite differences of its loss, several steps long: what a run leaves
// behind must not leak into the next.
func checkGradients(t *testing.T, build Build, batch int, feed func(step int) Feed) {
	t.Helper()
	var model Model
	group, err := replica.NewGroup(func(g *gorgonia.ExprGraph, rows int) (replica.Model, error) {
		m, err := build(g, rows)
		model = m
		return m.nodes(), err
	}, batch, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	trained, kept := group.First(), group.Memory()
	probe, err := group.Evaluator(batch) // shares the values
	if err != nil {
		t.Fatal(err)
	}
	loss := func(r *replica.Replica, f Feed) float64 {
		if err := errors.Join(r.Check(f, 1), r.Load(f, 0)); err != nil {
			t.Fatal(err)
		}
		sums, err := r.Run(operation.Call{Train: r == trained}, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		return sums[0]
	}
	for i, memory := range kept {
		trained.SetGradient(i, make([]byte, len(memory)))
	}
	for step := range 3 {
		f := feed(step)
		if got, want := loss(trained, f), loss(probe, f); math.Abs(got-want) > 1e-12 {
			t.Errorf("step %d: loss %v in training, %v in evaluation", step, got, want)
		}
		for i, n := range model.Variables {
			values, gradient := wire.Floats[float64](kept[i]), wire.Floats[float64](trained.Gradient(i))
			for j := range values {
				const h = 1e-5
				at := values[j]
				values[j] = at + h
				up := loss(probe, f)
				values[j] = at - h
				down := loss(probe, f)
				values[j] = at
				want := (up - down) / (2 * h)
				if math.Abs(gradient[j]-want) > 1e-6*(1+math.Abs(want)) {
					t.Fatalf("step %d, %s[%d]: gradient %v, finite difference %v", step, n.Name(), j, gradient[j], want)
				}
			}
		}
		for i, memory := range kept { // move on, all variables at once
			for j, d := range wire.Floats[float64](trained.Gradient(i)) {
				wire.Floats[float64](memory)[j] -= 0.1 * d
			}
		}
	}
}

func TestGradientsOfMLP(t *testing.T) {
	for _, kind := range []LossKind{Mean, Sum} {
		checkGradients(t, mlp(tensor.Float64, kind, 6, 5, 4, 3), 4, func(step int) Feed {
			return rows(tensor.Float64, step, 0, 4, 6, 3)
		})
	}
}

// A gradient that comes out transposed, a bias that is broadcast, and a
// variable that is used twice.
func TestGradientsOfOddGraphs(t *testing.T) {
	build := func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(batch, 4))
		y := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("y"), gorgonia.WithShape(batch, 4))
		w := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("w"), gorgonia.WithShape(3, 4),
			gorgonia.WithInit(GlorotUniform(1, "w")))
		b := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("b"), gorgonia.WithShape(3),
			gorgonia.WithInit(Normal(1, "b", 0, 1)))
		h := gorgonia.Must(gorgonia.Mul(x, gorgonia.Must(gorgonia.Transpose(w, 1, 0))))
		h = gorgonia.Must(gorgonia.BroadcastAdd(h, b, nil, []byte{0}))
		h = gorgonia.Must(gorgonia.Mul(gorgonia.Must(gorgonia.Sigmoid(h)), w))
		loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(h, y))))))
		return Model{Inputs: gorgonia.Nodes{x, y}, Variables: gorgonia.Nodes{w, b}, Loss: loss}, nil
	}
	checkGradients(t, build, 5, func(step int) Feed { return rows(tensor.Float64, step, 0, 5, 4, 4) })
}
