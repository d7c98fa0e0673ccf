package ops

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// everything lists all operations of the package, with the shapes of their
// inputs and the number of inputs, from the first on, that have a gradient.
var everything = map[string]struct {
	shapes   [][]int
	gradient int
	build    model
}{
	"relu":          {[][]int{{3, 5}}, 1, oneInput(Relu)},
	"sigmoid":       {[][]int{{3, 5}}, 1, oneInput(Sigmoid)},
	"tanh":          {[][]int{{3, 5}}, 1, oneInput(Tanh)},
	"softmax":       {[][]int{{3, 5}}, 1, oneInput(Softmax)},
	"log softmax":   {[][]int{{3, 5}}, 1, oneInput(LogSoftmax)},
	"flatten":       {[][]int{{3, 5, 2}}, 1, oneInput(Flatten)},
	"dropout":       {[][]int{{3, 5}}, 1, dropping(0.3, "d")},
	"cross entropy": {[][]int{{3, 5}, {3, 5}}, 1, twoInputs(CrossEntropy)},
	"summed":        {[][]int{{3, 5}, {3, 5}}, 1, twoInputs(SumCrossEntropy)},
	"add bias":      {[][]int{{3, 5, 2, 2}, {5}}, 2, twoInputs(AddBias)},
	"linear": {[][]int{{3, 5}, {5, 2}, {2}}, 3, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
		return Linear(in[0], in[1], in[2])
	}},
	"batch norm": {[][]int{{3, 2, 2, 2}, {2}, {2}, {2}, {2}}, 3, normal(wholeOut)},
	"max pool": {[][]int{{2, 3, 5, 5}}, 1, oneInput(func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return MaxPool2D(x, 3, 2, 1)
	})},
	"group norm": {[][]int{{2, 6, 2, 2}}, 1, grouped(3)},
	"oblong pool": {[][]int{{2, 3, 5, 4}}, 1, oneInput(func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return MaxPool(x, Walk{3, 1, 1}, Walk{2, 2, 0})
	})},
	"uniform": {[][]int{{2, 3}}, 1, oneInput(func(x *gorgonia.Node) (*gorgonia.Node, error) {
		b, err := Uniform(x.Graph(), x.Dtype(), -1, 2, "u", 3)
		if err != nil {
			return nil, err
		}
		return AddBias(x, b)
	})},
	"average pool": {[][]int{{2, 3, 5, 5}}, 1, oneInput(func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return AvgPool2D(x, 3, 2, 1)
	})},
	"convolution": {[][]int{{2, 3, 5, 5}, {4, 3, 3, 3}}, 2, twoInputs(func(x, f *gorgonia.Node) (*gorgonia.Node, error) {
		return Conv2D(x, f, 2, 1)
	})},
	"convolution in groups": {[][]int{{2, 4, 5, 5}, {2, 2, 3, 2}}, 2, twoInputs(func(x, f *gorgonia.Node) (*gorgonia.Node, error) {
		return Conv(x, f, Window{Stride: 2, Pad: 1}, Window{Stride: 1, Dilation: 2}, 2)
	})},
}

// lane runs a graph by calling Kernel.Run for each node, in topological order.
type lane struct {
	sorted gorgonia.Nodes
	values map[*gorgonia.Node]gorgonia.Value
	want   gorgonia.Nodes
}

// inputs returns random values. Those of the fifth input, a batch norm's
// variance, are positive.
func inputs(shapes [][]int) [][]float64 {
	all := numbers(9, shapes...)
	for i := 4; i < len(all); i++ {
		for k, v := range all[i] {
			all[i][k] = math.Abs(v) + 0.1
		}
	}
	return all
}

// newLane builds m and its gradients on inputs of the given type.
func newLane(t *testing.T, dtype tensor.Dtype, shapes [][]int, gradient int, m model) *lane {
	t.Helper()
	g := gorgonia.NewGraph()
	l := &lane{values: map[*gorgonia.Node]gorgonia.Value{}}
	var in gorgonia.Nodes
	for i, v := range inputs(shapes) {
		n := gorgonia.NewTensor(g, dtype, len(shapes[i]), gorgonia.WithShape(shapes[i]...), gorgonia.WithName(fmt.Sprintf("in%d", i)))
		x := tensor.New(tensor.Of(dtype), tensor.WithShape(shapes[i]...))
		for k := range v {
			set(x, k, v[k])
		}
		in, l.values[n] = append(in, n), x
	}
	out, err := m(in)
	must(t, err)
	loss, err := squares(out)
	must(t, err)
	gradients, err := gorgonia.Grad(loss, in[:gradient]...)
	must(t, err)
	l.want = append(gradients, out)
	l.sorted, err = gorgonia.Sort(g)
	must(t, err)
	slices.Reverse(l.sorted)
	return l
}

// squares returns the sum of squares of x, a loss for either type.
func squares(x *gorgonia.Node) (*gorgonia.Node, error) {
	square, err := gorgonia.HadamardProd(x, x)
	if err != nil || x.IsScalar() {
		return square, err
	}
	return gorgonia.Sum(square)
}

func set(v gorgonia.Value, i int, x float64) {
	if v.Dtype() == tensor.Float32 {
		data[float32](v)[i] = float32(x)
		return
	}
	data[float64](v)[i] = x
}

func get(v gorgonia.Value) []float64 {
	if v.Dtype() == tensor.Float64 {
		return slices.Clone(data[float64](v))
	}
	var all []float64
	for _, x := range data[float32](v) {
		all = append(all, float64(x))
	}
	return all
}

// run computes every node. The memory of the results is reused and holds NaN
// before the first run, to detect elements that an operation does not write.
func (l *lane) run(call operation.Call) error {
	for _, n := range l.sorted {
		op := n.Op()
		if op == nil {
			continue
		}
		if c, ok := op.(operation.Contextual); ok {
			c.Prepare(call)
		}
		in := l.inputs(n)
		k, ok := op.(operation.Kernel)
		if !ok {
			v, err := op.Do(in...)
			if err != nil {
				return err
			}
			l.values[n] = v
			continue
		}
		if l.values[n] == nil {
			size := memory.Elements(n.Shape()) * int(n.Dtype().Size())
			v, err := memory.Wrap(n.Dtype(), n.Shape(), n.IsScalar(), memory.Aligned(size))
			if err != nil {
				return err
			}
			l.values[n] = v
			for i := range memory.Elements(n.Shape()) {
				set(l.values[n], i, math.NaN())
			}
		}
		if err := k.Run(l.values[n], in...); err != nil {
			return err
		}
	}
	return nil
}

func (l *lane) inputs(n *gorgonia.Node) []gorgonia.Value {
	var in []gorgonia.Value
	edges := n.Graph().From(n.ID())
	for edges.Next() {
		in = append(in, l.values[edges.Node().(*gorgonia.Node)])
	}
	return in
}

// Results in float32 must equal those in float64, up to rounding.
func TestFloat32(t *testing.T) {
	for name, c := range everything {
		for _, call := range []operation.Call{training, {}} {
			narrow, wide := newLane(t, tensor.Float32, c.shapes, c.gradient, c.build), newLane(t, tensor.Float64, c.shapes, c.gradient, c.build)
			must(t, narrow.run(call))
			must(t, wide.run(call))
			for i := range wide.want {
				near(t, fmt.Sprintf("%s %d", name, i), get(narrow.values[narrow.want[i]]), get(wide.values[wide.want[i]]), 2e-4)
			}
		}
	}
}

func TestRunAllocatesNothing(t *testing.T) {
	for name, c := range everything {
		for _, dtype := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			l := newLane(t, dtype, c.shapes, c.gradient, c.build)
			must(t, l.run(training))
			kernels := 0
			for _, n := range l.sorted {
				k, ok := n.Op().(operation.Kernel)
				if !ok {
					continue
				}
				kernels++
				in, out, call := l.inputs(n), l.values[n], training
				allocations := testing.AllocsPerRun(10, func() {
					call.Step++
					if c, ok := n.Op().(operation.Contextual); ok {
						c.Prepare(call)
					}
					must(t, k.Run(out, in...))
				})
				if allocations != 0 {
					t.Errorf("%s: %v of %v makes %v allocations", name, n.Op(), dtype, allocations)
				}
			}
			if kernels < 2 {
				t.Errorf("%s has %d kernels", name, kernels)
			}
		}
	}
}

// Copies of a graph that run in parallel must give bit-identical results.
func TestGraphsRunInParallelWithEqualResults(t *testing.T) {
	for name, c := range everything {
		var lanes [4]*lane
		for i := range lanes {
			lanes[i] = newLane(t, tensor.Float32, c.shapes, c.gradient, c.build)
		}
		var done sync.WaitGroup
		for i, l := range lanes {
			done.Go(func() {
				for step := range 5 {
					call := training
					call.Step = uint64(step)
					if err := l.run(call); err != nil {
						t.Errorf("%s, lane %d: %v", name, i, err)
					}
				}
			})
		}
		done.Wait()
		for _, l := range lanes[1:] {
			for i, n := range l.want {
				if !slices.Equal(get(l.values[n]), get(lanes[0].values[lanes[0].want[i]])) {
					t.Errorf("%s: two lanes differ", name)
				}
			}
		}
	}
}

// Every setting must be part of the hash, because Gorgonia merges nodes with
// equal hashes.
func TestHashesDiffer(t *testing.T) {
	g := gorgonia.NewGraph()
	node := func(name string, dtype tensor.Dtype, s ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, dtype, len(s), gorgonia.WithShape(s...), gorgonia.WithName(name))
	}
	x, wide, long := node("x", tensor.Float32, 2, 2, 8, 8), node("wide", tensor.Float64, 2, 2, 8, 8), node("long", tensor.Float32, 2, 2, 8, 9)
	m, c, f, index := node("m", tensor.Float32, 2, 2), node("c", tensor.Float32, 2), node("f", tensor.Float32, 2, 2, 3, 3), node("index", tensor.Int, 2)
	half := node("half", tensor.Float32, 2, 1, 3, 3)
	norm := func(epsilon float64, name string) (*gorgonia.Node, error) {
		n, err := BatchNorm(x, c, c, c, c, 0.9, epsilon, name)
		return n.Out, err
	}
	must2 := func(n *gorgonia.Node, err error) *gorgonia.Node { t.Helper(); must(t, err); return n }
	seen := map[uint32]string{}
	for _, n := range []*gorgonia.Node{
		must2(Relu(x)), must2(Relu(wide)), must2(Relu(long)), must2(Sigmoid(x)), must2(Tanh(x)), must2(Softmax(x)), must2(LogSoftmax(x)),
		must2(Dropout(x, 0.5, "a")), must2(Dropout(x, 0.5, "b")), must2(Dropout(x, 0.25, "c")),
		must2(MaxPool2D(x, 2, 2, 0)), must2(MaxPool2D(x, 2, 1, 0)), must2(MaxPool2D(x, 3, 2, 1)), must2(MaxPool2D(x, 2, 2, 1)), must2(AvgPool2D(x, 2, 2, 0)),
		must2(Conv2D(x, f, 1, 1)), must2(Conv2D(x, f, 1, 2)), must2(Conv2D(x, f, 2, 1)),
		must2(Conv(x, f, Window{1, 1, 2}, Window{1, 1, 2}, 1)), must2(Conv(x, f, Window{1, 1, 1}, Window{1, 1, 2}, 1)), must2(Conv(x, f, Window{1, 1, 1}, Window{1, 2, 1}, 1)),
		must2(Conv(x, half, Window{1, 1, 1}, Window{1, 1, 1}, 2)),
		must2(norm(1e-3, "a")), must2(norm(1e-5, "a")), must2(norm(1e-3, "b")),
		must2(Flatten(x)), must2(AddBias(m, c)), must2(Linear(m, m, nil)), must2(Linear(m, m, c)),
		must2(CrossEntropy(m, m)), must2(SumCrossEntropy(m, m)), must2(CrossEntropy(m, c)), must2(CrossEntropy(m, index)),
	} {
		h := fnv.New32a()
		n.Op().WriteHash(h)
		if other, ok := seen[n.Op().Hashcode()]; ok || h.Sum32() != n.Op().Hashcode() {
			t.Errorf("%v has the hash of %q", n.Op(), other)
		}
		seen[n.Op().Hashcode()] = n.Op().String()
	}
}

// Differentiating a gradient must fail, because second derivatives are not
// supported.
func TestSecondDerivativesFail(t *testing.T) {
	for name, c := range everything {
		l := newLane(t, tensor.Float64, c.shapes, c.gradient, c.build)
		total, err := gorgonia.Sum(l.want[0])
		must(t, err)
		var x *gorgonia.Node
		for n := range l.values {
			if n.Name() == "in0" {
				x = n
			}
		}
		_, err = gorgonia.Grad(total, x)
		linear := name == "add bias" || name == "uniform" || name == "flatten" || name == "dropout"
		if !linear && (err == nil || !strings.Contains(err.Error(), "second derivatives are not supported")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRunRejectsWrongTypesAndShapes(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(2, 3), gorgonia.WithName("x"))
	y, err := Relu(x)
	must(t, err)
	k := y.Op().(operation.Kernel)
	fits, small := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2, 3)), tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2, 2))
	wide, turned := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(2, 3)), tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(3, 2))
	must(t, turned.T())
	for _, c := range []struct {
		out  gorgonia.Value
		in   []gorgonia.Value
		want string
	}{
		{fits, nil, "relu: 0 inputs, want 1"},
		{fits, []gorgonia.Value{fits, fits}, "2 inputs"},
		{fits, []gorgonia.Value{small}, "relu: input 0: a value is float32 (2, 2), want float32 (2, 3)"},
		{fits, []gorgonia.Value{wide}, "is float64 (2, 3)"},
		{fits, []gorgonia.Value{nil}, "want a tensor"},
		{small, []gorgonia.Value{fits}, "relu: result: a value is float32 (2, 2)"},
		{turned, []gorgonia.Value{fits}, "not row-major"},
		{nil, []gorgonia.Value{fits}, "want a tensor"},
	} {
		if err := k.Run(c.out, c.in...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	must(t, k.Run(fits, turned))
	for _, prealloc := range []gorgonia.Value{nil, small, wide, turned, fits} {
		v, err := y.Op().(gorgonia.UsePreallocDoer).UsePreallocDo(prealloc, fits)
		must(t, err)
		if !slices.Equal(v.Shape(), []int{2, 3}) || v == turned || v == wide {
			t.Errorf("with %v as memory the result is %v", prealloc, v)
		}
	}
}
