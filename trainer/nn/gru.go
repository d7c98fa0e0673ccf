package nn

import (
	"fmt"

	"github.com/plx-run/plx/trainer/nn/recurrent"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// GRU is a layer of gated recurrent units over whole sequences (Cho et al.
// 2014). The reset gate comes after the product, as in cuDNN, so that one
// product computes all gates of a step.
type GRU struct {
	X     *gorgonia.Node // (batch*steps, in): one sequence after the other
	Input *gorgonia.Node // (in, 3*units): the gates reset, update, candidate
	State *gorgonia.Node // (units, 3*units)
	Bias  *gorgonia.Node // (3*units)
	First *gorgonia.Node // (batch, units): outputs that the sequences begin with; nil means zeros
}

// Over adds the layer to the graph, for sequences of the given number of steps.
// With r, z, n the gates of x·Input + Bias and a, b, c those of h·State,
//
//	h = (1-u) tanh(n + sigmoid(r+a) c) + u h, where u = sigmoid(z+b)
func (l GRU) Over(steps int) (q Sequence, err error) {
	s, err := l.sizes(steps)
	if err != nil {
		return q, err
	}
	in := gorgonia.Nodes{l.X, l.Input, l.State, l.Bias}
	if s.Started {
		in = append(in, l.First)
	}
	trace := &op{
		what:  s.what,
		out:   operand{dtype: s.dtype, shape: tensor.Shape{s.TraceLength()}},
		run:   pass(s.dtype, recurrent.GRUForward[float32], recurrent.GRUForward[float64], s.GRU),
		fixed: len(in),
	}
	t, err := trace.apply(in...)
	if err != nil {
		return q, err
	}
	o := &op{
		what:  "results of " + s.what,
		out:   operand{dtype: s.dtype, shape: tensor.Shape{s.OutputLength()}},
		run:   pass(s.dtype, recurrent.GRUOutputs[float32], recurrent.GRUOutputs[float64], s.GRU),
		diff:  s.gradients,
		fixed: 1,
	}
	all, err := o.apply(append(in, t)...)
	if err != nil {
		return q, err
	}
	if q.Out, err = part("output of "+s.what, all, 0, s.Rows(), s.Units); err != nil {
		return q, err
	}
	q.Last, err = part("last of "+s.what, all, s.Rows()*s.Units, s.Batch, s.Units)
	return q, err
}

// gru is a GRU layer of a graph.
type gru struct {
	recurrent.GRU
	what  string
	dtype tensor.Dtype
}

// sizes checks the layer.
func (l GRU) sizes(steps int) (gru, error) {
	s := gru{what: fmt.Sprintf("gru of %d steps", steps), GRU: recurrent.GRU{Steps: steps, Started: l.First != nil}}
	in := gorgonia.Nodes{l.X, l.Input, l.State, l.Bias}
	if s.Started {
		in = append(in, l.First)
	}
	var err error
	if s.dtype, err = floats(s.what, in...); err != nil {
		return s, err
	}
	x, w := l.X.Shape(), l.State.Shape()
	if steps < 1 || len(x) != 2 || x[0]%max(steps, 1) != 0 || len(w) != 2 || w[1] != 3*w[0] {
		return s, fmt.Errorf("%s: X is %s and State %s, want (batch*%d, in) and (units, 3*units)", s.what, told(l.X), told(l.State), steps)
	}
	s.Batch, s.In, s.Units = x[0]/steps, x[1], w[0]
	return s, wantShapes(s.what, []wanted{
		{"Input", l.Input, []int{s.In, 3 * s.Units}},
		{"Bias", l.Bias, []int{3 * s.Units}},
		{"First", l.First, []int{s.Batch, s.Units}},
	})
}

// gradients are those of all inputs. The trace, the last input, has none.
func (s gru) gradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	b := &adder{what: s.what, dtype: s.dtype}
	add := func(which string, f32 func(recurrent.GRU) recurrent.Pass[float32], f64 func(recurrent.GRU) recurrent.Pass[float64], to tensor.Shape, from ...*gorgonia.Node) *gorgonia.Node {
		return b.add(which, pass(s.dtype, f32, f64, s.GRU), to, from...)
	}
	d := add("backward pass", recurrent.GRUBackward[float32], recurrent.GRUBackward[float64], tensor.Shape{s.BackwardLength()}, append(in[:len(in):len(in)], dy)...)
	state := gorgonia.Nodes{in[len(in)-1], d}
	if s.Started {
		state = append(state, in[4])
	}
	all := gorgonia.Nodes{
		add("X", recurrent.GRUXGradient[float32], recurrent.GRUXGradient[float64], in[0].Shape(), in[1], d),
		add("Input", recurrent.GRUInputGradient[float32], recurrent.GRUInputGradient[float64], in[1].Shape(), in[0], d),
		add("State", recurrent.GRUStateGradient[float32], recurrent.GRUStateGradient[float64], in[2].Shape(), state...),
		add("Bias", recurrent.GRUBiasGradient[float32], recurrent.GRUBiasGradient[float64], in[3].Shape(), d),
	}
	if s.Started {
		all = append(all, add("First", recurrent.GRUFirstGradient[float32], recurrent.GRUFirstGradient[float64], in[4].Shape(), d))
	}
	return append(all, nil), b.err
}
