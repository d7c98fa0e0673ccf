package executor

import (
	"math"
	"testing"

	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// near fails the test if got and want differ by more than tolerance, which is
// relative for numbers above 1.
func near(t *testing.T, what string, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.IsNaN(got[i]) && math.IsNaN(want[i]) {
			continue
		}
		if !(math.Abs(got[i]-want[i]) <= tolerance*(1+math.Abs(want[i]))) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

func same(t *testing.T, got, want results, tolerance float64) {
	t.Helper()
	near(t, "loss", []float64{got.loss}, []float64{want.loss}, tolerance)
	for i := range want.gradients {
		near(t, "gradient", got.gradients[i], want.gradients[i], tolerance)
	}
	for i := range want.outputs {
		near(t, "output", got.outputs[i], want.outputs[i], tolerance)
	}
}

// linear builds the model of examples/linear.
func linear(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
	x, y := leaf(g, dt, "x", 3, 1), leaf(g, dt, "y", 3, 1)
	w, b := leaf(g, dt, "w", 1, 1), leaf(g, dt, "b", 1, 1)
	guess := must(gorgonia.BroadcastAdd(must(gorgonia.Mul(x, w)), b, nil, []byte{0}))
	loss := must(gorgonia.Mean(must(gorgonia.Square(must(gorgonia.Sub(guess, y))))))
	return model{g, gorgonia.Nodes{x, y}, gorgonia.Nodes{w, b}, loss, gorgonia.Nodes{guess}}
}

func TestRunAllocatesNothing(t *testing.T) {
	ready := func(int) {}
	models := map[string]build{"mlp": mlp(8, 32, 16, 16, 8), "conv": smallConv}
	for _, e := range zoo {
		models[e.name] = e.build
	}
	for name, b := range models {
		s := compiled(t, b, tensor.Float32, 1, true)
		if n := testing.AllocsPerRun(20, func() {
			if _, err := s.program.Run(operation.Call{Step: 1, Train: true}, s.gradients, ready); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: a run allocates %v times, want 0", name, n)
		}
	}
}
