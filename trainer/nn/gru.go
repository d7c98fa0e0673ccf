package nn

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// GRU is a layer of gated recurrent units over whole sequences (Cho et al.
// 2014), with the reset gate after the product as cuDNN has it, so that all
// gates of a step come from one product.
type GRU struct {
	X     *gorgonia.Node // (batch*steps, in): one sequence after the other
	Input *gorgonia.Node // (in, 3*units): the gates reset, update, candidate
	State *gorgonia.Node // (units, 3*units)
	Bias  *gorgonia.Node // (3*units)
	First *gorgonia.Node // (batch, units): what the sequences begin with; nil is zeros
}

// Over adds the layer to the graph, for sequences of so many steps. With r, z,
// n the gates of x·Input + Bias and a, b, c those of h·State,
//
//	h = (1-u) tanh(n + sigmoid(r+a) c) + u h, where u = sigmoid(z+b)
func (l GRU) Over(steps int) (q Sequence, err error) {
	s, err := l.sizes(steps)
	if err != nil {
		return q, err
	}
	in := gorgonia.Nodes{l.X, l.Input, l.State, l.Bias}
	if s.started {
		in = append(in, l.First)
	}
	trace := &operation{
		what:  s.what,
		out:   operand{dtype: s.dtype, shape: tensor.Shape{s.rows() * 5 * s.units}},
		run:   choose(s.dtype, gruTrace[float32], gruTrace[float64], s),
		fixed: len(in),
	}
	t, err := trace.apply(in...)
	if err != nil {
		return q, err
	}
	o := &operation{
		what:  "results of " + s.what,
		out:   operand{dtype: s.dtype, shape: tensor.Shape{(s.rows() + s.batch) * s.units}},
		run:   choose(s.dtype, gruGive[float32], gruGive[float64], s),
		diff:  s.gradients,
		fixed: 1,
	}
	all, err := o.apply(append(in, t)...)
	if err != nil {
		return q, err
	}
	if q.Out, err = part("output of "+s.what, all, 0, s.rows(), s.units); err != nil {
		return q, err
	}
	q.Last, err = part("last of "+s.what, all, s.rows()*s.units, s.batch, s.units)
	return q, err
}

// gru is the sizes of a layer.
type gru struct {
	what                    string
	dtype                   tensor.Dtype
	batch, steps, in, units int
	started                 bool
}

// rows are the steps of all sequences.
func (s gru) rows() int { return s.batch * s.steps }

// sizes checks the layer.
func (l GRU) sizes(steps int) (gru, error) {
	s := gru{what: fmt.Sprintf("gru of %d steps", steps), steps: steps, started: l.First != nil}
	in := gorgonia.Nodes{l.X, l.Input, l.State, l.Bias}
	if s.started {
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
	s.batch, s.in, s.units = x[0]/steps, x[1], w[0]
	for _, c := range []struct {
		name string
		n    *gorgonia.Node
		want []int
	}{
		{"Input", l.Input, []int{s.in, 3 * s.units}},
		{"Bias", l.Bias, []int{3 * s.units}},
		{"First", l.First, []int{s.batch, s.units}},
	} {
		if c.n != nil && !slices.Equal(c.n.Shape(), c.want) {
			return s, fmt.Errorf("%s: %s is %s, want %v", s.what, c.name, told(c.n), c.want)
		}
	}
	return s, nil
}

// gradients are those of all inputs; the trace, the last, has none.
func (s gru) gradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	b := &adder{what: s.what, dtype: s.dtype}
	n := s.rows()*6*s.units + s.batch*s.units
	d := b.add("backward pass", choose(s.dtype, gruDeltas[float32], gruDeltas[float64], s), tensor.Shape{n}, append(in[:len(in):len(in)], dy)...)
	state := gorgonia.Nodes{in[len(in)-1], d}
	if s.started {
		state = append(state, in[4])
	}
	all := gorgonia.Nodes{
		b.add("X", choose(s.dtype, gruX[float32], gruX[float64], s), in[0].Shape(), in[1], d),
		b.add("Input", choose(s.dtype, gruInput[float32], gruInput[float64], s), in[1].Shape(), in[0], d),
		b.add("State", choose(s.dtype, gruState[float32], gruState[float64], s), in[2].Shape(), state...),
		b.add("Bias", choose(s.dtype, gruBias[float32], gruBias[float64], s), in[3].Shape(), d),
	}
	if s.started {
		all = append(all, b.add("First", choose(s.dtype, gruFirst[float32], gruFirst[float64], s), in[4].Shape(), d))
	}
	return append(all, nil), b.err
}
