package executor

import (
	"math"
	"testing"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type nodes = gorgonia.Nodes

// exhibit is one operation and the shapes of the variables with which the
// tests run it.
type exhibit struct {
	name     string
	shapes   [][]int // shapes of the variables; an empty shape means a scalar
	positive bool
	noGrad   bool // Gorgonia has no gradient or a wrong gradient for the operation (see compile/request.go)
	f        func(v nodes) *gorgonia.Node
}

func unaryOf(name string, positive, noGrad bool, f func(*gorgonia.Node) (*gorgonia.Node, error)) exhibit {
	return exhibit{name, [][]int{{3, 5}}, positive, noGrad, func(v nodes) *gorgonia.Node { return must(f(v[0])) }}
}

func binaryOf(name string, shapes [][]int, f func(a, b *gorgonia.Node) (*gorgonia.Node, error)) exhibit {
	return exhibit{name, shapes, true, false, func(v nodes) *gorgonia.Node { return must(f(v[0], v[1])) }}
}

var zoo = []exhibit{
	unaryOf("abs", false, false, gorgonia.Abs),
	unaryOf("sign", false, true, gorgonia.Sign),
	unaryOf("ceil", false, true, gorgonia.Ceil),
	unaryOf("floor", false, true, gorgonia.Floor),
	unaryOf("sin", false, false, gorgonia.Sin),
	unaryOf("cos", false, false, gorgonia.Cos),
	unaryOf("exp", false, false, gorgonia.Exp),
	unaryOf("log", true, false, gorgonia.Log),
	unaryOf("log2", true, true, gorgonia.Log2),
	unaryOf("neg", false, false, gorgonia.Neg),
	unaryOf("square", false, false, gorgonia.Square),
	unaryOf("sqrt", true, false, gorgonia.Sqrt),
	unaryOf("inverse", true, false, gorgonia.Inverse),
	unaryOf("inverse sqrt", true, true, gorgonia.InverseSqrt),
	unaryOf("cube", false, false, gorgonia.Cube),
	unaryOf("tanh", false, false, gorgonia.Tanh),
	unaryOf("sigmoid", false, false, gorgonia.Sigmoid),
	unaryOf("log1p", true, false, gorgonia.Log1p),
	unaryOf("expm1", false, false, gorgonia.Expm1),
	unaryOf("softplus", false, false, gorgonia.Softplus),
	unaryOf("rectify", false, false, gorgonia.Rectify),
	unaryOf("transpose", false, false, func(n *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Transpose(n) }),
	binaryOf("add", [][]int{{3, 5}, {3, 5}}, gorgonia.Add),
	binaryOf("sub", [][]int{{3, 5}, {3, 5}}, gorgonia.Sub),
	binaryOf("mul", [][]int{{3, 5}, {3, 5}}, gorgonia.HadamardProd),
	binaryOf("div", [][]int{{3, 5}, {3, 5}}, gorgonia.HadamardDiv),
	binaryOf("pow", [][]int{{3, 5}, {3, 5}}, gorgonia.Pow),
	binaryOf("add scalar", [][]int{{3, 5}, {}}, gorgonia.Add),
	binaryOf("scalar sub", [][]int{{}, {3, 5}}, gorgonia.Sub),
	binaryOf("sub scalar", [][]int{{3, 5}, {}}, gorgonia.Sub),
	binaryOf("scalar mul", [][]int{{}, {3, 5}}, gorgonia.HadamardProd),
	binaryOf("div scalar", [][]int{{3, 5}, {}}, gorgonia.HadamardDiv),
	binaryOf("scalar div", [][]int{{}, {3, 5}}, gorgonia.HadamardDiv),
	binaryOf("scalars", [][]int{{}, {}}, gorgonia.HadamardDiv),
	binaryOf("matmul", [][]int{{3, 5}, {5, 2}}, gorgonia.Mul),
	binaryOf("matvec", [][]int{{3, 5}, {5}}, gorgonia.Mul),
	binaryOf("vecmat", [][]int{{3}, {3, 5}}, gorgonia.Mul),
	binaryOf("dot", [][]int{{7}, {7}}, gorgonia.Mul),
	{"outer", [][]int{{3}, {4}}, false, true, func(v nodes) *gorgonia.Node { return must(gorgonia.OuterProd(v[0], v[1])) }},
	binaryOf("batched matmul", [][]int{{2, 3, 4}, {2, 4, 5}}, func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.BatchedMatMul(a, b) }),
	{"matmul of transposed", [][]int{{5, 3}, {2, 5}}, false, false, func(v nodes) *gorgonia.Node {
		return must(gorgonia.Mul(must(gorgonia.Transpose(v[0])), must(gorgonia.Transpose(v[1]))))
	}},
	{"broadcast rows", [][]int{{3, 5}, {1, 5}}, true, false, func(v nodes) *gorgonia.Node {
		return must(gorgonia.BroadcastHadamardDiv(v[0], v[1], nil, []byte{0}))
	}},
	{"broadcast columns", [][]int{{3, 1}, {3, 5}}, true, false, func(v nodes) *gorgonia.Node {
		return must(gorgonia.BroadcastSub(v[0], v[1], []byte{1}, nil))
	}},
	{"broadcast both", [][]int{{3, 1}, {1, 5}}, true, false, func(v nodes) *gorgonia.Node {
		return must(gorgonia.BroadcastAdd(v[0], v[1], []byte{1}, []byte{0}))
	}},
	{"broadcast channels", [][]int{{2, 3, 4, 5}, {1, 3, 1, 1}}, true, false, func(v nodes) *gorgonia.Node {
		return must(gorgonia.BroadcastHadamardProd(v[0], v[1], nil, []byte{0, 2, 3}))
	}},
	{"sum", [][]int{{3, 5}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Sum(v[0])) }},
	{"sum rows", [][]int{{3, 5}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Sum(v[0], 1)) }},
	{"sum columns", [][]int{{3, 5}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Sum(v[0], 0)) }},
	{"sum middle", [][]int{{2, 3, 4}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Sum(v[0], 1)) }},
	{"sum outsides", [][]int{{2, 3, 4}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Sum(v[0], 0, 2)) }},
	{"mean", [][]int{{3, 5}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Mean(v[0])) }},
	{"mean rows", [][]int{{3, 5}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Mean(v[0], 1)) }},
	{"max rows", [][]int{{3, 5}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Max(v[0], 1)) }},
	{"max columns", [][]int{{3, 5}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Max(v[0], 0)) }},
	{"reshape", [][]int{{3, 4}}, false, false, func(v nodes) *gorgonia.Node {
		return must(gorgonia.Square(must(gorgonia.Reshape(v[0], tensor.Shape{2, 6}))))
	}},
	{"permute", [][]int{{2, 3, 4, 5}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Transpose(v[0], 0, 3, 1, 2)) }},
	{"permute all", [][]int{{2, 3, 4, 5}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Transpose(v[0], 2, 0, 3, 1)) }},
	{"slice rows", [][]int{{6, 5}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Slice(v[0], gorgonia.S(1, 4))) }},
	{"slice columns", [][]int{{6, 5}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Slice(v[0], nil, gorgonia.S(1, 4))) }},
	{"slice one", [][]int{{6, 5}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Slice(v[0], gorgonia.S(2))) }},
	{"slice vector", [][]int{{6}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Slice(v[0], gorgonia.S(2))) }},
	{"concat rows", [][]int{{2, 5}, {3, 5}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Concat(0, v[0], v[1])) }},
	{"concat columns", [][]int{{3, 2}, {3, 4}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.Concat(1, v[0], v[1])) }},
	{"at", [][]int{{3, 4}}, false, true, func(v nodes) *gorgonia.Node { return must(gorgonia.At(v[0], 1, 2)) }},
	{"softmax", [][]int{{3, 4}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.SoftMax(v[0], 1)) }},
	{"log softmax", [][]int{{3, 4}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.LogSoftMax(v[0], 1)) }},
	{"convolution", [][]int{{2, 3, 6, 5}, {4, 3, 3, 3}}, false, false, func(v nodes) *gorgonia.Node {
		return must(gorgonia.Conv2d(v[0], v[1], tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
	}},
	{"strided convolution", [][]int{{2, 3, 7, 6}, {4, 3, 3, 2}}, false, false, func(v nodes) *gorgonia.Node {
		return must(gorgonia.Conv2d(v[0], v[1], tensor.Shape{3, 2}, []int{0, 1}, []int{2, 2}, []int{1, 2}))
	}},
	{"min between", [][]int{{3, 4}, {3, 4}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.MinBetween(v[0], v[1])) }},
	{"max between", [][]int{{3, 4}, {3, 4}}, false, false, func(v nodes) *gorgonia.Node { return must(gorgonia.MaxBetween(v[0], v[1])) }},
	{"compare", [][]int{{3, 4}, {3, 4}}, false, true, func(v nodes) *gorgonia.Node {
		lt, gt := must(gorgonia.Lt(v[0], v[1], true)), must(gorgonia.Gt(v[0], v[1], true))
		lte, gte := must(gorgonia.Lte(v[0], v[1], true)), must(gorgonia.Gte(v[0], v[1], true))
		eq, ne := must(gorgonia.Eq(v[0], v[0], true)), must(gorgonia.Ne(v[0], v[1], true))
		return must(gorgonia.Concat(0, lt, gt, lte, gte, eq, ne))
	}},
}

// build builds a model of the operation alone. Its loss gives every element of
// the result a different weight.
func (e exhibit) build(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
	m := model{g: g}
	for i, s := range e.shapes {
		m.variables = append(m.variables, leaf(g, dt, string(rune('a'+i)), s...))
	}
	out := e.f(m.variables)
	m.outputs = nodes{out}
	if e.noGrad {
		return m
	}
	if out.IsScalar() {
		m.loss = must(gorgonia.Square(out))
		return m
	}
	weights := leaf(g, dt, "weights", out.Shape()...)
	m.inputs = nodes{weights}
	m.loss = must(gorgonia.Sum(must(gorgonia.HadamardProd(must(gorgonia.Square(out)), weights))))
	return m
}

func TestOperationsMatchNaiveInterpreter(t *testing.T) {
	for _, e := range zoo {
		t.Run(e.name, func(t *testing.T) {
			for _, dt := range []tensor.Dtype{tensor.Float64, tensor.Float32} {
				tolerance := 1e-11
				if dt == tensor.Float32 {
					tolerance = 2e-5
				}
				s := compiled(t, e.build, dt, 7, e.positive)
				want := naively(t, e.build, dt, 7, e.positive)
				for range 2 {
					same(t, s.run(t), want, tolerance)
				}
				if e.name != "scalars" {
					s.ownKernels(t)
				}
			}
		})
	}
}

// ownKernels fails the test if Gorgonia's code, and no plx kernel, computes an
// instruction.
func (s *session) ownKernels(t *testing.T) {
	t.Helper()
	for _, in := range s.program.compiled.Instructions {
		if in.Value.Op.Kind == compile.Other {
			t.Errorf("%s has no kernel", in.Value.Label())
		}
	}
}

func TestOperationGradientsMatchFiniteDifferences(t *testing.T) {
	for _, e := range zoo {
		if !e.noGrad {
			t.Run(e.name, func(t *testing.T) { finiteDifferences(t, e.build, e.positive, 2e-6) })
		}
	}
}

// finiteDifferences compares every gradient with the change of the loss for a
// small change of the variable.
func finiteDifferences(t *testing.T, b build, positive bool, tolerance float64) {
	t.Helper()
	s := compiled(t, b, tensor.Float64, 3, positive)
	got := s.run(t).gradients
	for i, v := range s.values {
		bytes, _ := memory.Raw(v)
		x := memory.View[float64](bytes)
		for j := range x {
			const h = 1e-5
			was := x[j]
			x[j] = was + h
			up := s.run(t).loss
			x[j] = was - h
			down := s.run(t).loss
			x[j] = was
			slope := (up - down) / (2 * h)
			if !(math.Abs(slope-got[i][j]) <= tolerance*(1+math.Abs(slope))) {
				t.Fatalf("variable %d element %d: gradient %v, slope %v", i, j, got[i][j], slope)
			}
		}
	}
}

func TestModelGradientsMatchFiniteDifferences(t *testing.T) {
	for name, b := range map[string]build{"linear": linear, "mlp": mlp(4, 5, 4, 3), "mlp of one row": mlp(1, 5, 4, 3), "conv": smallConv} {
		t.Run(name, func(t *testing.T) { finiteDifferences(t, b, false, 1e-6) })
	}
}

// smallConv builds a model of a convolution with a bias, relu, and a linear
// layer.
func smallConv(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
	x, y := leaf(g, dt, "x", 2, 3, 6, 6), leaf(g, dt, "y", 2, 4)
	w, b, d := leaf(g, dt, "w", 5, 3, 3, 3), leaf(g, dt, "b", 1, 5, 1, 1), leaf(g, dt, "d", 5*36, 4)
	c := must(gorgonia.Conv2d(x, w, tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
	c = must(gorgonia.Rectify(must(gorgonia.BroadcastAdd(c, b, nil, []byte{0, 2, 3}))))
	flat := must(gorgonia.Reshape(c, tensor.Shape{2, 5 * 36}))
	out := must(gorgonia.Mul(flat, d))
	return model{g, nodes{x, y}, nodes{w, b, d}, crossEntropy(out, y), nodes{out}}
}
