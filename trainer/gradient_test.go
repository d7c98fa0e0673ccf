package trainer

import (
	"errors"
	"math"
	"testing"

	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/wire"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// checkGradients compares every gradient of a float64 model with central
// finite differences of its loss, several steps long: what a run leaves
// behind must not leak into the next.
func checkGradients(t *testing.T, build Build, batch int, feed func(step int) Feed) {
	t.Helper()
	trained, kept, err := newLane(build, batch, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	probe, _, err := newLane(build, batch, kept, false) // shares the values
	if err != nil {
		t.Fatal(err)
	}
	loss := func(l *lane, f Feed) float64 {
		if err := errors.Join(l.check(f, 1), l.load(f, 0, nil)); err != nil {
			t.Fatal(err)
		}
		sums, err := l.run(executor.Call{Train: l == trained}, func(int) {}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return sums[0]
	}
	for i, v := range kept {
		memory, _ := rowMajor(v)
		trained.gradients[i] = make([]byte, len(memory))
	}
	for step := range 3 {
		f := feed(step)
		if got, want := loss(trained, f), loss(probe, f); math.Abs(got-want) > 1e-12 {
			t.Errorf("step %d: loss %v in training, %v in evaluation", step, got, want)
		}
		for i, n := range trained.model.Variables {
			memory, _ := rowMajor(kept[i])
			values, gradient := wire.Floats[float64](memory), wire.Floats[float64](trained.gradients[i])
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
		for i := range kept { // move on, all variables at once
			memory, _ := rowMajor(kept[i])
			for j, d := range wire.Floats[float64](trained.gradients[i]) {
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

func TestGatherFollowsStrides(t *testing.T) {
	v := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6}))
	if err := v.T(); err != nil {
		t.Fatal(err)
	}
	to := make([]float32, 6)
	if err := copyInto(wire.Bytes(to), v); err != nil {
		t.Fatal(err)
	}
	for i, want := range []float32{1, 4, 2, 5, 3, 6} {
		if to[i] != want {
			t.Fatalf("got %v", to)
		}
	}
}
