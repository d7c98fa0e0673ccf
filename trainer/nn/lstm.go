package nn

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// LSTM is a layer of long short-term memory over whole sequences (Hochreiter
// and Schmidhuber 1997, with the forget gate of Gers et al. 2000).
type LSTM struct {
	X     *gorgonia.Node // (batch*steps, in): one sequence after the other
	Input *gorgonia.Node // (in, 4*units): the gates input, forget, candidate, output
	State *gorgonia.Node // (out, 4*units)
	Bias  *gorgonia.Node // (4*units)

	// Forget is added to the forget gate's bias: 1 makes cells begin by
	// keeping what they hold (Jozefowicz et al. 2015).
	Forget float64

	// Projection, (units, out), makes what the layer gives and feeds back
	// narrower than its cells (Sak et al. 2014). Without one out is units.
	Projection *gorgonia.Node
	// First, (batch, out), and FirstCell, (batch, units), are what the
	// sequences begin with. Both nil are zeros.
	First, FirstCell *gorgonia.Node
}

// Sequence is what a recurrent layer gives. All of it has a gradient.
type Sequence struct {
	Out  *gorgonia.Node // (batch*steps, out)
	Last *gorgonia.Node // (batch, out): the last step of Out
	Cell *gorgonia.Node // (batch, units): the cells after the last step; nil for a GRU
}

// Over adds the layer to the graph, for sequences of so many steps. With
// i, f, g, o the gates of x·Input + h·State + Bias,
//
//	c = sigmoid(f + Forget) c + sigmoid(i) tanh(g)
//	h = sigmoid(o) tanh(c), times Projection
//
// Gates of all steps are computed by one product for X and one per step for
// the state.
func (l LSTM) Over(steps int) (Sequence, error) {
	s, err := l.sizes(steps)
	if err != nil {
		return Sequence{}, err
	}
	in := gorgonia.Nodes{l.X, l.Input, l.State, l.Bias}
	if s.projected {
		in = append(in, l.Projection)
	}
	if s.started {
		in = append(in, l.First, l.FirstCell)
	}
	trace := &operation{
		what:  s.what,
		out:   operand{dtype: s.dtype, shape: tensor.Shape{s.traced()}},
		run:   choose(s.dtype, lstmTrace[float32], lstmTrace[float64], s),
		fixed: len(in),
	}
	t, err := trace.apply(in...)
	if err != nil {
		return Sequence{}, err
	}
	return s.outputs(append(in, t))
}

// lstm is the sizes of a layer and where its numbers lie.
type lstm struct {
	what               string
	dtype              tensor.Dtype
	batch, steps       int
	in, units, width   int // width of what it gives
	projected, started bool
	forget             float64
}

// sizes checks the layer.
func (l LSTM) sizes(steps int) (lstm, error) {
	s := lstm{what: fmt.Sprintf("lstm of %d steps", steps), steps: steps, forget: l.Forget, projected: l.Projection != nil, started: l.First != nil}
	if l.Forget != 0 {
		s.what += fmt.Sprintf(" that keeps %v", l.Forget)
	}
	in := gorgonia.Nodes{l.X, l.Input, l.State, l.Bias}
	if (l.First != nil) != (l.FirstCell != nil) {
		return s, fmt.Errorf("%s: give both First and FirstCell, or neither", s.what)
	}
	for _, n := range []*gorgonia.Node{l.Projection, l.First, l.FirstCell} {
		if n != nil {
			in = append(in, n)
		}
	}
	var err error
	if s.dtype, err = floats(s.what, in...); err != nil {
		return s, err
	}
	x, w := l.X.Shape(), l.State.Shape()
	if steps < 1 || len(x) != 2 || x[0]%max(steps, 1) != 0 || len(w) != 2 || w[1]%4 != 0 {
		return s, fmt.Errorf("%s: X is %s and State %s, want (batch*%d, in) and (out, 4*units)", s.what, told(l.X), told(l.State), steps)
	}
	s.batch, s.in, s.units, s.width = x[0]/steps, x[1], w[1]/4, w[0]
	return s, s.fit(l)
}

// fit wants the layer's values to have the shapes that follow from the sizes.
func (s lstm) fit(l LSTM) error {
	for _, c := range []struct {
		name string
		n    *gorgonia.Node
		want []int
	}{
		{"Input", l.Input, []int{s.in, 4 * s.units}},
		{"State", l.State, []int{s.width, 4 * s.units}},
		{"Bias", l.Bias, []int{4 * s.units}},
		{"Projection", l.Projection, []int{s.units, s.width}},
		{"First", l.First, []int{s.batch, s.width}},
		{"FirstCell", l.FirstCell, []int{s.batch, s.units}},
	} {
		if c.n != nil && !slices.Equal(c.n.Shape(), c.want) {
			return fmt.Errorf("%s: %s is %s, want %v", s.what, c.name, told(c.n), c.want)
		}
	}
	if !s.projected && s.width != s.units {
		return fmt.Errorf("%s: State is %s, want (%d, %d) without a projection", s.what, told(l.State), s.units, 4*s.units)
	}
	return nil
}

// rows are the steps of all sequences.
func (s lstm) rows() int { return s.batch * s.steps }

// traced is the number of elements of a trace: what the forward pass computes
// and the backward pass reads.
func (s lstm) traced() int {
	n := s.rows() * 7 * s.units
	if s.projected {
		n += s.rows() * s.width
	}
	return n
}

// given is the number of elements of what the layer gives: Out, Last, Cell.
func (s lstm) given() int { return (s.rows()+s.batch)*s.width + s.batch*s.units }

// outputs adds an operation that holds all that the layer gives, and its
// pieces. in ends with the trace, which has no gradient: that of what the
// layer gives is computed from it.
func (s lstm) outputs(in gorgonia.Nodes) (q Sequence, err error) {
	o := &operation{
		what:  "results of " + s.what,
		out:   operand{dtype: s.dtype, shape: tensor.Shape{s.given()}},
		run:   choose(s.dtype, lstmGive[float32], lstmGive[float64], s),
		diff:  s.gradients,
		fixed: 1,
	}
	all, err := o.apply(in...)
	if err != nil {
		return q, err
	}
	if q.Out, err = part("output of "+s.what, all, 0, s.rows(), s.width); err != nil {
		return q, err
	}
	if q.Last, err = part("last of "+s.what, all, s.rows()*s.width, s.batch, s.width); err != nil {
		return q, err
	}
	q.Cell, err = part("cells of "+s.what, all, (s.rows()+s.batch)*s.width, s.batch, s.units)
	return q, err
}
