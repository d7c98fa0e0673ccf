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

func dropping(p float64, name string) model {
	return func(in []*gorgonia.Node) (*gorgonia.Node, error) { return Dropout(in[0], p, name) }
}

func dropped(t *testing.T, x []float64, p float64, name string, call operation.Call) []float64 {
	t.Helper()
	f := feed(t, [][]int{{len(x)}}, [][]float64{x}, dropping(p, name))
	f.run(t, call)
	return f.get(f.out)
}

// The fraction of dropped elements must be p, and the others must be scaled by
// 1/(1-p).
func TestDropoutDropsTheGivenFraction(t *testing.T) {
	x := make([]float64, 40001)
	for i := range x {
		x[i] = 1
	}
	for _, p := range []float64{0, 0.1, 0.5, 0.75, 0.99} {
		zeros := 0
		for _, v := range dropped(t, x, p, "d", training) {
			switch {
			case v == 0:
				zeros++
			case math.Abs(v-1/(1-p)) > 1e-12:
				t.Fatalf("p %v: an element became %v, want 0 or %v", p, v, 1/(1-p))
			}
		}
		share, deviation := float64(zeros)/float64(len(x)), math.Sqrt(p*(1-p)/float64(len(x)))
		if math.Abs(share-p) > 5*deviation {
			t.Errorf("p %v: %v were dropped", p, share)
		}
	}
}

func TestDropoutIsTheIdentityInEvaluation(t *testing.T) {
	x := numbers(1, []int{50})[0]
	call := training
	call.Train = false
	if got := dropped(t, x, 0.5, "d", call); !slices.Equal(got, x) {
		t.Error("an evaluation changed x")
	}
}

// The dropped elements must depend on the seed, the name, the step and the
// virtual worker, but not on the number of virtual workers.
func TestDropoutDependsOnNameAndCall(t *testing.T) {
	x := numbers(2, []int{101})[0]
	first := dropped(t, x, 0.5, "d", training)
	more := training
	more.VirtualWorkers = 99
	if !slices.Equal(first, dropped(t, x, 0.5, "d", training)) || !slices.Equal(first, dropped(t, x, 0.5, "d", more)) {
		t.Error("the same call dropped other elements")
	}
	step, leaf, seed := training, training, training
	step.Step, leaf.VirtualWorker, seed.Seed = 4, 2, 8
	for what, other := range map[string][]float64{
		"name": dropped(t, x, 0.5, "e", training), "step": dropped(t, x, 0.5, "d", step),
		"leaf": dropped(t, x, 0.5, "d", leaf), "seed": dropped(t, x, 0.5, "d", seed),
	} {
		same := 0
		for i := range other {
			if (other[i] == 0) == (first[i] == 0) {
				same++
			}
		}
		if same < 25 || same > 76 {
			t.Errorf("another %s: %d of 101 elements have the same fate", what, same)
		}
	}
}

// A graph that runs several steps must compute the same as a new graph for
// each step.
func TestDropoutIsRepeatableInOneGraph(t *testing.T) {
	x := numbers(3, []int{9, 3})[0]
	f := feed(t, [][]int{{9, 3}}, [][]float64{x}, dropping(0.4, "d"))
	evaluation := training
	evaluation.Train = false
	next := training
	next.Step++
	for _, call := range []operation.Call{{}, training, evaluation, training, next} {
		f.run(t, call)
		if !slices.Equal(f.get(f.out), dropped(t, x, 0.4, "d", call)) {
			t.Errorf("call %+v: not what a new graph computes", call)
		}
	}
}

func TestDropoutGradient(t *testing.T) {
	for _, s := range [][]int{{1}, {7}, {3, 5}, {2, 3, 3, 1}} {
		for _, p := range []float64{0, 0.3, 0.5, 0.9} {
			checkGradient(t, [][]int{s}, numbers(4, s), 1, training, dropping(p, "d"))
			checkGradient(t, [][]int{s}, numbers(4, s), 1, operation.Call{}, dropping(p, "d"))
		}
	}
}

// A dropped NaN, infinity or negative number must become exactly 0.
func TestDropoutDropsNaNAndInfinity(t *testing.T) {
	x := make([]float64, 64)
	for i := range x {
		x[i] = []float64{math.NaN(), math.Inf(1), -1}[i%3]
	}
	zeros := 0
	for _, v := range dropped(t, x, 0.5, "d", training) {
		if math.Float64bits(v) == 0 {
			zeros++
		}
	}
	if zeros < 16 || zeros > 48 {
		t.Errorf("%d of 64 elements are 0", zeros)
	}
}

func TestDropoutErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(2, 3), gorgonia.WithName("x"))
	whole := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(2), gorgonia.WithName("n"))
	_, err := Dropout(x, 0.5, "twice")
	must(t, err)
	for _, c := range []struct {
		x    *gorgonia.Node
		p    float64
		name string
		want string
	}{
		{x, 1, "a", `dropout "a": the probability to drop is 1`},
		{x, -0.1, "a", "is -0.1"},
		{x, math.NaN(), "a", "is NaN"},
		{x, 0.5, "", "no name"},
		{x, 0.2, "twice", `dropout "twice": the graph has one of this name`},
		{whole, 0.5, "a", `"n" (2) is int, want float32 or float64`},
		{nil, 0.5, "a", "nil"},
	} {
		if _, err := Dropout(c.x, c.p, c.name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("p %v name %q: %v, want %q", c.p, c.name, err, c.want)
		}
	}
}
