package ops

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// plus returns a model that adds a random tensor, made by draw, to its input.
func plus(draw func(g *gorgonia.ExprGraph, shape []int) (*gorgonia.Node, error)) model {
	return oneInput(func(x *gorgonia.Node) (*gorgonia.Node, error) {
		r, err := draw(x.Graph(), x.Shape())
		if err != nil {
			return nil, err
		}
		return gorgonia.Add(x, r)
	})
}

// distributions lists random tensors with the mean and variance of their
// elements.
var distributions = map[string]struct {
	draw           func(g *gorgonia.ExprGraph, name string, n int) (*gorgonia.Node, error)
	mean, variance float64
}{
	"uniform": {func(g *gorgonia.ExprGraph, name string, n int) (*gorgonia.Node, error) {
		return Uniform(g, tensor.Float64, -1, 3, name, n)
	}, 1, 16. / 12},
	"gaussian": {func(g *gorgonia.ExprGraph, name string, n int) (*gorgonia.Node, error) {
		return Gaussian(g, tensor.Float64, 2, 0.5, name, n)
	}, 2, 0.25},
	"binomial": {func(g *gorgonia.ExprGraph, name string, n int) (*gorgonia.Node, error) {
		return Binomial(g, tensor.Float64, 5, 0.3, name, n)
	}, 1.5, 5 * 0.3 * 0.7},
}

// drawn returns n numbers drawn from a distribution.
func drawn(t *testing.T, which, name string, n int, call operation.Call) []float64 {
	t.Helper()
	m := plus(func(g *gorgonia.ExprGraph, shape []int) (*gorgonia.Node, error) {
		return distributions[which].draw(g, name, n)
	})
	f := feed(t, [][]int{{n}}, [][]float64{make([]float64, n)}, m)
	f.run(t, call)
	return f.get(f.out)
}

func TestRandomTensorsHaveTheirDistribution(t *testing.T) {
	const n = 40001
	for which, want := range distributions {
		mean, squares := 0.0, 0.0
		for _, v := range drawn(t, which, "r", n, training) {
			mean += v / n
			squares += (v - want.mean) * (v - want.mean) / n
		}
		if math.Abs(mean-want.mean) > 5*math.Sqrt(want.variance/n) || math.Abs(squares-want.variance) > 0.05*want.variance {
			t.Errorf("%s: mean %v and variance %v, want %v and %v", which, mean, squares, want.mean, want.variance)
		}
	}
}

func TestRandomTensorsDependOnNameAndCall(t *testing.T) {
	step, worker, seed := training, training, training
	step.Step, worker.VirtualWorker, seed.Seed = 4, 2, 8
	for which := range distributions {
		first := drawn(t, which, "r", 101, training)
		if !slices.Equal(first, drawn(t, which, "r", 101, training)) {
			t.Errorf("%s: the same call drew other numbers", which)
		}
		for what, other := range map[string][]float64{
			"name": drawn(t, which, "s", 101, training), "step": drawn(t, which, "r", 101, step),
			"virtual worker": drawn(t, which, "r", 101, worker), "seed": drawn(t, which, "r", 101, seed),
		} {
			if slices.Equal(first, other) {
				t.Errorf("%s: another %s drew the same numbers", which, what)
			}
		}
	}
}

func TestRandomTensorErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	if _, err := Uniform(g, tensor.Float32, 0, 1, "taken", 3); err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]func() (*gorgonia.Node, error){
		"the graph has one of this name": func() (*gorgonia.Node, error) { return Gaussian(g, tensor.Float32, 0, 1, "taken", 3) },
		"it has no name":                 func() (*gorgonia.Node, error) { return Uniform(g, tensor.Float32, 0, 1, "", 3) },
		"the smaller one first":          func() (*gorgonia.Node, error) { return Uniform(g, tensor.Float32, 2, 1, "a", 3) },
		"a deviation of at least 0":      func() (*gorgonia.Node, error) { return Gaussian(g, tensor.Float32, 0, -1, "a", 3) },
		"a p from 0 to 1":                func() (*gorgonia.Node, error) { return Binomial(g, tensor.Float32, 3, 1.5, "a", 3) },
		"want float32 or float64":        func() (*gorgonia.Node, error) { return Binomial(g, tensor.Int, 3, 0.5, "a", 3) },
	} {
		if _, err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
