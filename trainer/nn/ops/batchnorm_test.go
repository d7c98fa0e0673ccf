package ops

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func normal(which func(Normalised) *gorgonia.Node) model {
	return func(in []*gorgonia.Node) (*gorgonia.Node, error) {
		n, err := BatchNorm(in[0], in[1], in[2], in[3], in[4], 0.9, 1e-3, "bn")
		return which(n), err
	}
}

func wholeOut(n Normalised) *gorgonia.Node { return n.Out }

// normInputs returns shapes and values of x, scale, bias, running mean and
// running variance.
func normInputs(s []int) ([][]int, [][]float64) {
	c := s[1:2]
	shapes := [][]int{s, c, c, c, c}
	values := numbers(1, shapes...)
	for i := range values[4] {
		values[4][i] = math.Abs(values[4][i]) + 0.1
	}
	return shapes, values
}

// moments computes the mean and variance of each channel, as a reference.
func moments(x []float64, s []int) (mean, variance []float64) {
	space := memory.Elements(s[2:])
	for c := range s[1] {
		var all []float64
		for i, v := range x {
			if i/space%s[1] == c {
				all = append(all, v)
			}
		}
		sum, squares := 0.0, 0.0
		for _, v := range all {
			sum += v
		}
		sum /= float64(len(all))
		for _, v := range all {
			squares += (v - sum) * (v - sum)
		}
		mean, variance = append(mean, sum), append(variance, squares/float64(len(all)))
	}
	return mean, variance
}

func TestBatchNorm(t *testing.T) {
	for _, s := range [][]int{{2, 1}, {5, 3}, {1, 2, 3, 3}, {3, 2, 1, 2}, {2, 3, 4}, {4, 1, 2, 5}} {
		shapes, values := normInputs(s)
		mean, variance := moments(values[0], s)
		space := memory.Elements(s[2:])
		for _, call := range []operation.Call{training, {}} {
			if !call.Train {
				mean, variance = values[3], values[4]
			}
			want := make([]float64, len(values[0]))
			for i, v := range values[0] {
				c := i / space % s[1]
				want[i] = (v-mean[c])/math.Sqrt(variance[c]+1e-3)*values[1][c] + values[2][c]
			}
			what := fmt.Sprintf("%v train %t", s, call.Train)
			near(t, what, checkGradient(t, shapes, values, 3, call, normal(wholeOut)), want, 1e-12)
			for which, want := range map[int][]float64{0: mean, 1: variance} {
				f := feed(t, shapes, values, normal(func(n Normalised) *gorgonia.Node {
					return []*gorgonia.Node{n.BatchMean, n.BatchVariance}[which]
				}))
				f.run(t, call)
				near(t, what+" statistic", f.get(f.out), want, 1e-13)
			}
		}
	}
}

// A training run must leave no state: an evaluation after it uses the running
// mean and variance.
func TestBatchNormHasNoState(t *testing.T) {
	shapes, values := normInputs([]int{4, 3})
	f := feed(t, shapes, values, normal(wholeOut))
	f.run(t, operation.Call{})
	first := f.get(f.out)
	f.run(t, training)
	if slices.Equal(first, f.get(f.out)) {
		t.Error("training and evaluation give the same")
	}
	f.run(t, operation.Call{})
	if !slices.Equal(first, f.get(f.out)) {
		t.Error("a training run changed the evaluation after it")
	}
}

// The variance must be exact even if the mean is large.
func TestBatchNormOfLargeMean(t *testing.T) {
	shapes, values := normInputs([]int{6, 1})
	_, want := moments(values[0], shapes[0])
	for i := range values[0] {
		values[0][i] += 1 << 30
	}
	f := feed(t, shapes, values, normal(func(n Normalised) *gorgonia.Node { return n.BatchVariance }))
	f.run(t, training)
	near(t, "variance", f.get(f.out), want, 1e-6)
}

func TestBatchNormRefusesOneElementInTraining(t *testing.T) {
	shapes, values := normInputs([]int{1, 3})
	f := feed(t, shapes, values, normal(wholeOut))
	f.run(t, operation.Call{})
	for _, n := range f.graph.AllNodes() {
		if op, ok := n.Op().(operation.Contextual); ok {
			op.Prepare(training)
		}
	}
	if err := f.machine.RunAll(); err == nil || !strings.Contains(err.Error(), `batch norm "bn"`) || !strings.Contains(err.Error(), "one element per channel") {
		t.Errorf("one row: %v", err)
	}
}

func TestBatchNormErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	node := func(name string, s ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(s), gorgonia.WithShape(s...), gorgonia.WithName(name))
	}
	x, c := node("x", 4, 3), node("c", 3)
	for _, k := range []struct {
		x, scale          *gorgonia.Node
		momentum, epsilon float64
		want              string
	}{
		{c, c, 0.9, 1e-5, `batch norm "b": x is "c" (3), want (batch, channels)`},
		{x, node("d", 4), 0.9, 1e-5, `x is "x" (4, 3), so "d" (4) must be (3)`},
		{x, nil, 0.9, 1e-5, "nil"},
		{x, c, 1, 1e-5, "the momentum is 1,"},
		{x, c, math.NaN(), 1e-5, "the momentum is NaN"},
		{x, c, 0.9, 0, "epsilon is 0"},
		{x, c, 0.9, math.Inf(1), "epsilon is +Inf"},
	} {
		if _, err := BatchNorm(k.x, k.scale, c, c, c, k.momentum, k.epsilon, "b"); err == nil || !strings.Contains(err.Error(), k.want) {
			t.Errorf("%v, want %q", err, k.want)
		}
	}
}
