package executor

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// model is a graph for a test, and the loss, variables and outputs that a
// program computes of it.
type model struct {
	g         *gorgonia.ExprGraph
	inputs    gorgonia.Nodes
	variables gorgonia.Nodes
	loss      *gorgonia.Node
	outputs   gorgonia.Nodes
}

// build builds a model in an empty graph. Each executor builds the model
// again, because two executors cannot share a graph.
type build func(g *gorgonia.ExprGraph, dt tensor.Dtype) model

func leaf(g *gorgonia.ExprGraph, dt tensor.Dtype, name string, shape ...int) *gorgonia.Node {
	if len(shape) == 0 {
		return gorgonia.NewScalar(g, dt, gorgonia.WithName(name))
	}
	return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
}

func must(n *gorgonia.Node, err error) *gorgonia.Node {
	if err != nil {
		panic(err)
	}
	return n
}

// crossEntropy is as in examples/mlp.
func crossEntropy(logits, labels *gorgonia.Node) *gorgonia.Node {
	largest := must(gorgonia.Max(logits, 1))
	shifted := must(gorgonia.BroadcastSub(logits, largest, nil, []byte{1}))
	logSum := must(gorgonia.Log(must(gorgonia.Sum(must(gorgonia.Exp(shifted)), 1))))
	chosen := must(gorgonia.Sum(must(gorgonia.HadamardProd(shifted, labels)), 1))
	return must(gorgonia.Mean(must(gorgonia.Sub(logSum, chosen))))
}

// mlp builds the model of examples/mlp.
func mlp(batch int, widths ...int) build {
	return func(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
		x := leaf(g, dt, "x", batch, widths[0])
		y := leaf(g, dt, "y", batch, widths[len(widths)-1])
		m := model{g: g, inputs: gorgonia.Nodes{x, y}}
		out := x
		for i := range len(widths) - 1 {
			w := leaf(g, dt, fmt.Sprint("w", i), widths[i], widths[i+1])
			m.variables = append(m.variables, w)
			if i > 0 {
				out = must(gorgonia.Tanh(out))
			}
			out = must(gorgonia.Mul(out, w))
		}
		m.outputs = gorgonia.Nodes{out}
		m.loss = crossEntropy(out, y)
		return m
	}
}

// values returns a random value for every leaf, determined by seed. The values
// are positive if positive is true.
func values(nodes gorgonia.Nodes, seed uint64, positive bool) []gorgonia.Value {
	random := rand.New(rand.NewPCG(seed, 1))
	var vs []gorgonia.Value
	for _, n := range nodes {
		next := func() float64 {
			if positive {
				return 0.2 + random.Float64()
			}
			return random.NormFloat64() * 0.5
		}
		vs = append(vs, valueOf(n.Dtype(), n.Shape(), n.IsScalar(), next))
	}
	return vs
}

func valueOf(dt tensor.Dtype, shape tensor.Shape, scalar bool, next func() float64) gorgonia.Value {
	b := memory.Aligned(memory.Elements(shape) * int(dt.Size()))
	for i := range memory.Elements(shape) {
		if dt == tensor.Float32 {
			memory.View[float32](b)[i] = float32(next())
		} else {
			memory.View[float64](b)[i] = next()
		}
	}
	v, err := memory.Wrap(dt, shape, scalar, b)
	if err != nil {
		panic(err)
	}
	return v
}

// floatsOf returns the elements of v as float64, in row-major order.
func floatsOf(t testing.TB, v gorgonia.Value) []float64 {
	t.Helper()
	n := 1
	if d, ok := v.(*tensor.Dense); ok {
		n = memory.Elements(d.Shape())
	}
	b := make([]byte, n*int(v.Dtype().Size()), n*int(v.Dtype().Size())+8)
	if err := memory.Copy(b, v); err != nil {
		t.Fatal(err)
	}
	return float64s(v.Dtype(), b)
}

func float64s(dt tensor.Dtype, b []byte) []float64 {
	if dt == tensor.Float64 {
		return append([]float64(nil), memory.View[float64](b)...)
	}
	var out []float64
	for _, x := range memory.View[float32](b) {
		out = append(out, float64(x))
	}
	return out
}

// results is what one run of a model computes.
type results struct {
	loss      float64
	gradients [][]float64
	outputs   [][]float64
}

// session is a compiled model, with memory for its gradients.
type session struct {
	model     model
	program   *Program
	gradients [][]byte
	values    []gorgonia.Value // of the variables
}

func compiled(t testing.TB, b build, dt tensor.Dtype, seed uint64, positive bool) *session {
	t.Helper()
	return compiledBy(t, Compile, b, dt, seed, positive)
}

// compiledBy compiles a model with function by, such as Compile.
func compiledBy(t testing.TB, by func(*gorgonia.ExprGraph, Plan) (*Program, error), b build, dt tensor.Dtype, seed uint64, positive bool) *session {
	t.Helper()
	m := b(gorgonia.NewGraph(), dt)
	s := &session{model: m, values: values(m.variables, seed, positive)}
	plan := Plan{Inputs: m.inputs, Fixed: m.variables, FixedValues: s.values, Loss: m.loss, Outputs: m.outputs}
	if m.loss != nil {
		plan.Differentiate = m.variables
	}
	var err error
	if s.program, err = by(m.g, plan); err != nil {
		t.Fatal(err)
	}
	for i, v := range values(m.inputs, seed+1, positive) {
		from, _ := memory.Raw(v)
		to, _ := memory.Raw(s.program.Input(i))
		copy(to, from)
	}
	for _, n := range plan.Differentiate {
		s.gradients = append(s.gradients, memory.Aligned(memory.Elements(n.Shape())*int(dt.Size())))
	}
	return s
}

func (s *session) run(t testing.TB) results {
	t.Helper()
	loss, err := s.program.Run(operation.Call{Train: true}, s.gradients, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := results{loss: loss}
	for i, g := range s.gradients {
		r.gradients = append(r.gradients, float64s(s.model.variables[i].Dtype(), g))
	}
	for i := range s.model.outputs {
		r.outputs = append(r.outputs, floatsOf(t, s.program.Output(i)))
	}
	return r
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
