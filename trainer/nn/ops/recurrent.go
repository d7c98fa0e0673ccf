package ops

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/nn/recurrent"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Sequence holds the outputs of a recurrent layer. All of them have a
// gradient.
type Sequence struct {
	Out  *gorgonia.Node // outputs of all steps, of shape (batch*steps, out)
	Last *gorgonia.Node // (batch, out): outputs of the last step of each sequence
	Cell *gorgonia.Node // (batch, units): the cell states after the last step; nil for a GRU
}

// wanted is an input of a layer, together with the shape that it must have.
type wanted struct {
	name  string
	n     *gorgonia.Node // nil if the caller did not set this input
	shape []int
}

// wantShapes returns an error if one of the inputs is set and has the wrong
// shape.
func wantShapes(what string, all []wanted) error {
	for _, w := range all {
		if w.n != nil && !slices.Equal(w.n.Shape(), w.shape) {
			return fmt.Errorf("%s: %s is %s, want %v", what, w.name, told(w.n), w.shape)
		}
	}
	return nil
}

// layer adds a recurrent layer to the graph as two operations. The first
// computes the trace, which holds all intermediate values of the layer, and
// has no gradient. The second extracts the outputs from the trace; its
// gradient is computed from the trace too.
func (b *adder) layer(trace, outputs *op, in gorgonia.Nodes) *gorgonia.Node {
	t := b.apply(trace.with(nil, len(in)), in...)
	return b.apply(outputs, append(in, t)...)
}

// LSTM is a long short-term memory layer over whole sequences (Hochreiter and
// Schmidhuber 1997, with the forget gate of Gers et al. 2000).
type LSTM struct {
	X     *gorgonia.Node // input of shape (batch*steps, in): one sequence after the other
	Input *gorgonia.Node // (in, 4*units): weights of X for the input gate, forget gate, candidate and output gate
	State *gorgonia.Node // (out, 4*units): weights of the state (outputs of the previous step) for the four gates
	Bias  *gorgonia.Node // (4*units): bias of the four gates

	// Forget is added to the forget gate's bias. With 1, an untrained layer
	// tends to keep its cell states (Jozefowicz et al. 2015).
	Forget float64

	// Projection (units, out) maps the cells' outputs to a smaller width. Its
	// results are the layer's outputs and the state of the next step (Sak et
	// al. 2014). If it is nil, out equals units.
	Projection *gorgonia.Node
	// First (batch, out) and FirstCell (batch, units) are the outputs and cell
	// states before the first step. If both are nil, they are zeros.
	First, FirstCell *gorgonia.Node
}

// Over adds the layer to the graph, for sequences of the given number of
// steps. h is the state (outputs of the previous step) and c the cell states.
// If i, f, g and o are the four parts of x·Input + h·State + Bias, a step
// computes
//
//	c = sigmoid(f + Forget) c + sigmoid(i) tanh(g)
//	h = sigmoid(o) tanh(c), times Projection
//
// The products x·Input of all steps are one matrix product. The product
// h·State is a separate matrix product in each step.
func (l LSTM) Over(steps int) (q Sequence, err error) {
	s, in, err := l.sizes(steps)
	if err != nil {
		return q, err
	}
	trace := newOp(s.what, s.dtype, tensor.Shape{s.TraceLength()},
		pass(s.dtype, recurrent.LSTMForward[float32], recurrent.LSTMForward[float64], s.LSTM))
	outputs := newOp("results of "+s.what, s.dtype, tensor.Shape{s.OutputLength()},
		pass(s.dtype, recurrent.LSTMOutputs[float32], recurrent.LSTMOutputs[float64], s.LSTM)).with(s.gradients, 1)
	b := &adder{}
	all := b.layer(trace, outputs, in)
	q.Out = b.part("output of "+s.what, all, 0, s.Rows(), s.Width)
	q.Last = b.part("last of "+s.what, all, s.Rows()*s.Width, s.Batch, s.Width)
	q.Cell = b.part("cells of "+s.what, all, (s.Rows()+s.Batch)*s.Width, s.Batch, s.Units)
	return q, b.err
}

// lstm holds the sizes of an LSTM layer, and its name for errors.
type lstm struct {
	recurrent.LSTM
	what  string
	dtype tensor.Dtype
}

// sizes checks the shapes of the layer's inputs. It returns the layer's sizes
// and its inputs.
func (l LSTM) sizes(steps int) (s lstm, in gorgonia.Nodes, err error) {
	s = lstm{what: fmt.Sprintf("lstm of %d steps", steps),
		LSTM: recurrent.LSTM{Sizes: recurrent.Sizes{Steps: steps, Started: l.First != nil}, Forget: l.Forget, Projected: l.Projection != nil}}
	if l.Forget != 0 {
		s.what += fmt.Sprintf(" that keeps %v", l.Forget)
	}
	in = gorgonia.Nodes{l.X, l.Input, l.State, l.Bias}
	if (l.First != nil) != (l.FirstCell != nil) {
		return s, nil, fmt.Errorf("%s: give both First and FirstCell, or neither", s.what)
	}
	for _, n := range []*gorgonia.Node{l.Projection, l.First, l.FirstCell} {
		if n != nil {
			in = append(in, n)
		}
	}
	if s.dtype, err = floats(s.what, in...); err != nil {
		return s, nil, err
	}
	x, w := l.X.Shape(), l.State.Shape()
	if steps < 1 || len(x) != 2 || x[0]%max(steps, 1) != 0 || len(w) != 2 || w[1]%4 != 0 {
		return s, nil, fmt.Errorf("%s: X is %s and State %s, want (batch*%d, in) and (out, 4*units)", s.what, told(l.X), told(l.State), steps)
	}
	s.Batch, s.In, s.Units, s.Width = x[0]/steps, x[1], w[1]/4, w[0]
	err = wantShapes(s.what, []wanted{
		{"Input", l.Input, []int{s.In, 4 * s.Units}},
		{"State", l.State, []int{s.Width, 4 * s.Units}},
		{"Bias", l.Bias, []int{4 * s.Units}},
		{"Projection", l.Projection, []int{s.Units, s.Width}},
		{"First", l.First, []int{s.Batch, s.Width}},
		{"FirstCell", l.FirstCell, []int{s.Batch, s.Units}},
	})
	if err == nil && !s.Projected && s.Width != s.Units {
		err = fmt.Errorf("%s: State is %s, want (%d, %d) without a projection", s.what, told(l.State), s.Units, 4*s.Units)
	}
	return s, in, err
}

// gradients adds the gradients of all inputs to the graph. The last input, the
// trace (intermediate values of the layer), has none.
func (s lstm) gradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	trace, shape := in[len(in)-1], s.LSTM
	b := &adder{what: s.what, dtype: s.dtype}
	add := func(which string, f32 func(recurrent.LSTM) recurrent.Pass[float32], f64 func(recurrent.LSTM) recurrent.Pass[float64], to tensor.Shape, from ...*gorgonia.Node) *gorgonia.Node {
		return b.add(which, pass(s.dtype, f32, f64, shape), to, from...)
	}
	d := add("backward pass", recurrent.LSTMBackward[float32], recurrent.LSTMBackward[float64], tensor.Shape{s.BackwardLength()}, append(in[:len(in):len(in)], dy)...)
	state := gorgonia.Nodes{trace, d}
	if s.Started {
		state = append(state, in[len(in)-3])
	}
	all := gorgonia.Nodes{
		b.product("X", product{m: s.Rows(), n: s.In, k: 4 * s.Units, right: true}, d, in[1]),
		b.product("Input", product{m: s.In, n: 4 * s.Units, k: s.Rows(), left: true}, in[0], d),
		add("State", recurrent.LSTMStateGradient[float32], recurrent.LSTMStateGradient[float64], in[2].Shape(), state...),
		add("Bias", recurrent.LSTMBiasGradient[float32], recurrent.LSTMBiasGradient[float64], in[3].Shape(), d),
	}
	if s.Projected {
		all = append(all, add("Projection", recurrent.LSTMProjectionGradient[float32], recurrent.LSTMProjectionGradient[float64], in[4].Shape(), trace, d))
	}
	if s.Started {
		all = append(all,
			add("First", recurrent.LSTMFirstGradient[float32], recurrent.LSTMFirstGradient[float64], tensor.Shape{s.Batch, s.Width}, in[2], d),
			add("FirstCell", recurrent.LSTMFirstCellGradient[float32], recurrent.LSTMFirstCellGradient[float64], tensor.Shape{s.Batch, s.Units}, d))
	}
	return append(all, nil), b.err
}

// GRU is a layer of gated recurrent units over whole sequences (Cho et al.
// 2014). As in cuDNN, the reset gate is applied after the matrix product, so
// that one product computes all gates of a step.
type GRU struct {
	X     *gorgonia.Node // input of shape (batch*steps, in): one sequence after the other
	Input *gorgonia.Node // (in, 3*units): weights of X for the reset gate, update gate and candidate
	State *gorgonia.Node // (units, 3*units): weights of the state (outputs of the previous step) for the three gates
	Bias  *gorgonia.Node // (3*units): bias of the three gates
	First *gorgonia.Node // (batch, units): state before the first step; nil means zeros
}

// Over adds the layer to the graph, for sequences of the given number of
// steps. If h is the state (outputs of the previous step), r, z and n are the
// three parts of x·Input + Bias, and a, b and c those of h·State, a step
// computes
//
//	h = (1-u) tanh(n + sigmoid(r+a) c) + u h, where u = sigmoid(z+b)
func (l GRU) Over(steps int) (q Sequence, err error) {
	s, in, err := l.sizes(steps)
	if err != nil {
		return q, err
	}
	trace := newOp(s.what, s.dtype, tensor.Shape{s.TraceLength()},
		pass(s.dtype, recurrent.GRUForward[float32], recurrent.GRUForward[float64], s.GRU))
	outputs := newOp("results of "+s.what, s.dtype, tensor.Shape{s.OutputLength()},
		pass(s.dtype, recurrent.GRUOutputs[float32], recurrent.GRUOutputs[float64], s.GRU)).with(s.gradients, 1)
	b := &adder{}
	all := b.layer(trace, outputs, in)
	q.Out = b.part("output of "+s.what, all, 0, s.Rows(), s.Units)
	q.Last = b.part("last of "+s.what, all, s.Rows()*s.Units, s.Batch, s.Units)
	return q, b.err
}

// gru holds the sizes of a GRU layer, and its name for errors.
type gru struct {
	recurrent.GRU
	what  string
	dtype tensor.Dtype
}

// sizes checks the shapes of the layer's inputs. It returns the layer's sizes
// and its inputs.
func (l GRU) sizes(steps int) (s gru, in gorgonia.Nodes, err error) {
	s = gru{what: fmt.Sprintf("gru of %d steps", steps), GRU: recurrent.GRU{Sizes: recurrent.Sizes{Steps: steps, Started: l.First != nil}}}
	in = gorgonia.Nodes{l.X, l.Input, l.State, l.Bias}
	if s.Started {
		in = append(in, l.First)
	}
	if s.dtype, err = floats(s.what, in...); err != nil {
		return s, nil, err
	}
	x, w := l.X.Shape(), l.State.Shape()
	if steps < 1 || len(x) != 2 || x[0]%max(steps, 1) != 0 || len(w) != 2 || w[1] != 3*w[0] {
		return s, nil, fmt.Errorf("%s: X is %s and State %s, want (batch*%d, in) and (units, 3*units)", s.what, told(l.X), told(l.State), steps)
	}
	s.Batch, s.In, s.Units = x[0]/steps, x[1], w[0]
	return s, in, wantShapes(s.what, []wanted{
		{"Input", l.Input, []int{s.In, 3 * s.Units}},
		{"Bias", l.Bias, []int{3 * s.Units}},
		{"First", l.First, []int{s.Batch, s.Units}},
	})
}

// gradients adds the gradients of all inputs to the graph. The last input, the
// trace (intermediate values of the layer), has none.
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
		b.product("X", product{m: s.Rows(), n: s.In, k: 3 * s.Units, right: true}, d, in[1]),
		b.product("Input", product{m: s.In, n: 3 * s.Units, k: s.Rows(), left: true}, in[0], d),
		add("State", recurrent.GRUStateGradient[float32], recurrent.GRUStateGradient[float64], in[2].Shape(), state...),
		add("Bias", recurrent.GRUBiasGradient[float32], recurrent.GRUBiasGradient[float64], in[3].Shape(), d),
	}
	if s.Started {
		all = append(all, add("First", recurrent.GRUFirstGradient[float32], recurrent.GRUFirstGradient[float64], in[4].Shape(), d))
	}
	return append(all, nil), b.err
}
