package rewrite

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/replica"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// array is a row-major tensor of the naive computation.
type array struct {
	shape []int
	data  []float64
}

// of returns an array whose element at each index i is f(i).
func of(shape []int, f func(i []int) float64) array {
	a := array{shape, make([]float64, memory.Elements(shape))}
	index := make([]int, len(shape))
	for n := range a.data {
		a.data[n] = f(index)
		memory.Advance(index, shape)
	}
	return a
}

func (a array) at(i ...int) float64 {
	n := 0
	for d, x := range i {
		n = n*a.shape[d] + x
	}
	return a.data[n]
}

// twin is one of Gorgonia's operations, with a function that computes the same
// by plain loops.
type twin struct {
	name     string // name of Gorgonia's function; after a colon, what is special about the case
	shapes   [][]int
	f        func(v gorgonia.Nodes) (*gorgonia.Node, error)
	want     func(v []array) array
	positive bool // want no negative arguments
	flat     bool // it has no gradient
}

// special returns numbers that implementations often treat wrongly (zeros,
// NaN, infinities), and equal numbers. For matrix products it leaves out
// zeros, because libraries may compute 0 times NaN as 0. For sparsemax, whose
// result is always finite, it leaves out NaN and infinities.
func (w twin) special() []float64 {
	finite, zeros := []float64{1, 1, -1, 750, -750, 1e-300, 30}, []float64{0, math.Copysign(0, -1)}
	endless := []float64{math.NaN(), math.Inf(1), math.Inf(-1)}
	switch name, _, _ := strings.Cut(w.name, ":"); name {
	case "Mul", "BatchedMatMul", "ReduceMul", "Tensordot", "Conv1d", "Conv2d":
		return slices.Concat(finite, endless)
	case "Sparsemax":
		return slices.Concat(finite, zeros)
	}
	return slices.Concat(finite, zeros, endless)
}

// check compares a compiled program of w's operation with the naive
// computation: for random and for special numbers, and gradients with finite
// differences.
func (w twin) check(t *testing.T) {
	p := newTrial(t, w)
	for seed := range uint64(2) {
		p.fill(seed, w.positive)
		p.compare(t, 1e-9)
		if !w.flat && seed == 0 {
			p.checkSlopes(t)
		}
	}
	numbers := w.special()
	for i := range p.in {
		r := rand.New(rand.NewPCG(uint64(i), 9))
		for j := range p.in[i].data {
			p.in[i].data[j] = numbers[r.IntN(len(numbers))]
		}
	}
	p.compare(t, 1e-9)
}

// trial is a compiled program of a twin's operation, with its arguments.
type trial struct {
	twin
	program   *executor.Program
	in        []array // views of the memory of the program's inputs
	weights   []float64
	gradients [][]byte
}

func newTrial(t *testing.T, w twin) *trial {
	t.Helper()
	g, p := gorgonia.NewGraph(), &trial{twin: w}
	var inputs gorgonia.Nodes
	for i, shape := range w.shapes {
		inputs = append(inputs, gorgonia.NewTensor(g, tensor.Float64, len(shape), gorgonia.WithName(fmt.Sprint("x", i)), gorgonia.WithShape(shape...)))
	}
	y, err := w.f(inputs)
	must(t, err)
	m := replica.Model{Inputs: inputs, Fetches: map[string]*gorgonia.Node{"y": y}}
	m.Loss, p.weights = weighed(t, g, y)
	made, err := Model(m, true)
	must(t, err)
	plan := executor.Plan{Inputs: made.Inputs, Loss: made.Loss, Outputs: gorgonia.Nodes{made.Fetches["y"]}}
	if !w.flat {
		plan.Differentiate = plan.Inputs
	}
	p.program, err = executor.Compile(made.Loss.Graph(), plan)
	must(t, err)
	for i, shape := range w.shapes {
		p.in = append(p.in, array{shape, p.program.Input(i).Data().([]float64)})
		if !w.flat {
			p.gradients = append(p.gradients, memory.Aligned(8*memory.Elements(shape)))
		}
	}
	return p
}

// weighed returns the weighted sum of y's elements, and the weights, which are
// all different.
func weighed(t *testing.T, g *gorgonia.ExprGraph, y *gorgonia.Node) (*gorgonia.Node, []float64) {
	t.Helper()
	weights := make([]float64, memory.Elements(y.Shape()))
	for i := range weights {
		weights[i] = math.Sin(float64(3*i+1)) + 0.3
	}
	if y.IsScalar() {
		weights[0] = 1
		return y, weights
	}
	w := gorgonia.NewTensor(g, tensor.Float64, len(y.Shape()), gorgonia.WithName("weights"), gorgonia.WithShape(y.Shape()...),
		gorgonia.WithValue(tensor.New(tensor.WithShape(y.Shape()...), tensor.WithBacking(weights))))
	weighed, err := gorgonia.HadamardProd(y, w)
	must(t, err)
	loss, err := gorgonia.Sum(weighed)
	must(t, err)
	return loss, weights
}

func (p *trial) fill(seed uint64, positive bool) {
	r := rand.New(rand.NewPCG(seed, 3))
	for _, a := range p.in {
		for j := range a.data {
			a.data[j] = r.NormFloat64()
			if positive {
				a.data[j] = 0.2 + r.Float64()
			}
		}
	}
}

// compare runs the program and compares its value with that of the naive
// computation.
func (p *trial) compare(t *testing.T, tolerance float64) {
	t.Helper()
	_, err := p.program.Run(training, p.gradients, nil)
	must(t, err)
	want, got := p.want(p.in), floats(p.program.Output(0))
	if shape := p.program.Output(0).Shape(); !slices.Equal(shape, want.shape) {
		t.Fatalf("shape %v, want %v", shape, want.shape)
	}
	for i := range want.data {
		if a, b := got[i], want.data[i]; a != b && !(math.Abs(a-b) <= tolerance*(1+math.Abs(b))) && !(math.IsNaN(a) && math.IsNaN(b)) {
			t.Fatalf("element %d is %v, want %v", i, a, b)
		}
	}
}

func floats(v gorgonia.Value) []float64 {
	if d, ok := v.Data().([]float64); ok {
		return d
	}
	return []float64{v.Data().(float64)}
}

// loss returns the loss according to the naive computation.
func (p *trial) loss() (sum float64) {
	for i, y := range p.want(p.in).data {
		sum += y * p.weights[i]
	}
	return sum
}

// checkSlopes compares some elements of each gradient with finite differences:
// the first, the middle and the last element, and those around 256 and 65536.
func (p *trial) checkSlopes(t *testing.T) {
	t.Helper()
	h := 1e-6 * math.Cbrt(1+math.Abs(p.loss())) // a larger step for a large loss, which has no digits left for a small change
	for i, a := range p.in {
		got := memory.View[float64](p.gradients[i])
		for _, j := range []int{0, 255, 256, 65535, 65536, len(a.data) / 2, len(a.data) - 1} {
			if j < 0 || j >= len(a.data) {
				continue
			}
			at := a.data[j]
			a.data[j] = at + h
			up := p.loss()
			a.data[j] = at - h
			want := (up - p.loss()) / (2 * h)
			a.data[j] = at
			if !(math.Abs(got[j]-want) <= 1e-4*(1+math.Abs(want))) {
				t.Errorf("argument %d, element %d: gradient %v, finite differences of the twin say %v", i, j, got[j], want)
			}
		}
	}
}

func TestTwins(t *testing.T) {
	for _, w := range twins(2, 264) {
		t.Run(w.name, w.check)
	}
}
