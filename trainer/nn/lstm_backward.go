package nn

import (
	"gonum.org/v1/gonum/blas"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// deltas are the pieces of what the backward pass computes: the gradients of
// the gates before their functions, (batch*steps, 4*units), of the first
// cells, (batch, units), and where the layer is projected of what it gives at
// each step, (batch*steps, width).
type deltas[T float] struct{ gates, cell, out []T }

func cutDeltas[T float](s lstm, x []T) (d deltas[T]) {
	d.gates, x = x[:s.rows()*4*s.units], x[s.rows()*4*s.units:]
	d.cell, d.out = x[:s.batch*s.units], x[s.batch*s.units:]
	return d
}

// gradients are those of all inputs; the trace, the last, has none.
func (s lstm) gradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	trace := in[len(in)-1]
	n := s.rows()*4*s.units + s.batch*s.units
	if s.projected {
		n += s.rows() * s.width
	}
	b := &adder{what: s.what, dtype: s.dtype}
	d := b.add("backward pass", choose(s.dtype, lstmDeltas[float32], lstmDeltas[float64], s), tensor.Shape{n}, append(in[:len(in):len(in)], dy)...)
	all := gorgonia.Nodes{
		b.product("X", product{m: s.rows(), n: s.in, k: 4 * s.units, right: blas.Trans}, d, in[1]),
		b.product("Input", product{m: s.in, n: 4 * s.units, k: s.rows(), left: blas.Trans}, in[0], d),
	}
	state := append(gorgonia.Nodes{trace, d}, in[len(in)-3:len(in)-1]...) // with the first state, where there is one
	if !s.started {
		state = state[:2]
	}
	all = append(all,
		b.add("State", choose(s.dtype, lstmState[float32], lstmState[float64], s), in[2].Shape(), state...),
		b.add("Bias", choose(s.dtype, lstmBias[float32], lstmBias[float64], s), in[3].Shape(), d))
	if s.projected {
		all = append(all, b.add("Projection", choose(s.dtype, lstmProjection[float32], lstmProjection[float64], s), in[4].Shape(), trace, d))
	}
	if s.started {
		all = append(all,
			b.add("First", choose(s.dtype, lstmFirst[float32], lstmFirst[float64], s), tensor.Shape{s.batch, s.width}, in[2], d),
			b.add("FirstCell", choose(s.dtype, lstmFirstCell[float32], lstmFirstCell[float64], s), tensor.Shape{s.batch, s.units}, d))
	}
	return append(all, nil), b.err
}

// adder adds the operations of a gradient to a graph, none after the first
// error.
type adder struct {
	what  string
	dtype tensor.Dtype
	err   error
}

func (b *adder) add(which string, run kernel, shape tensor.Shape, in ...*gorgonia.Node) (n *gorgonia.Node) {
	if b.err == nil {
		o := &operation{what: "gradient of " + which + " of " + b.what, out: operand{dtype: b.dtype, shape: shape}, run: run}
		n, b.err = o.apply(in...)
	}
	return n
}

// product takes the first rows of its inputs where they are longer.
func (b *adder) product(which string, p product, x, y *gorgonia.Node) *gorgonia.Node {
	return b.add(which, choose(b.dtype, multiply[float32], multiply[float64], p), tensor.Shape{p.m, p.n}, x, y)
}

// lstmDeltas is the backward pass. It has the layer's inputs, the trace and
// the gradient of what the layer gives.
func lstmDeltas[T float](s lstm) kernel {
	zeros, out, hidden := make([]T, s.units), make([]T, s.batch*s.width), make([]T, s.batch*s.units)
	return func(to gorgonia.Value, in []gorgonia.Value) error {
		w, t, d := cutInputs(s, in, zeros), cutTrace(s, data[T](in[len(in)-2])), cutDeltas(s, data[T](to))
		dy := data[T](in[len(in)-1])
		last := whole(dy[s.rows()*s.width:], s.width)
		copy(d.cell, dy[(s.rows()+s.batch)*s.width:])
		for at := s.steps - 1; at >= 0; at-- {
			dOut := whole(out, s.width)
			dHidden := dOut
			if s.projected {
				dOut, dHidden = step(d.out, at, s.steps, s.width), whole(hidden, s.units)
			}
			for i := range s.batch {
				copy(dOut.row(i, s.width), dy[(i*s.steps+at)*s.width:])
				if at == s.steps-1 {
					accumulate(dOut.row(i, s.width), last.row(i, s.width))
				}
			}
			if at < s.steps-1 {
				mul(s.batch, s.width, 4*s.units, step(d.gates, at+1, s.steps, 4*s.units), whole(w.state, 4*s.units).t(), 1, dOut)
			}
			if s.projected {
				mul(s.batch, s.units, s.width, dOut, whole(w.projection, s.width).t(), 0, dHidden)
			}
			before := w.cell
			if at > 0 {
				before = step(t.cell, at-1, s.steps, s.units)
			}
			for i := range s.batch {
				lstmStepBack(s, t, d, i, at, before.row(i, s.units), dHidden.row(i, s.units))
			}
		}
		return nil
	}
}

// lstmStepBack makes the gradient of one row's gates from that of its hidden
// values and cells, and then that of the cells before.
func lstmStepBack[T float](s lstm, t traces[T], d deltas[T], i, at int, before, dHidden []T) {
	n, row := s.units, i*s.steps+at
	gates, tanh, to, dCell := t.gates[row*4*n:][:4*n], t.tanh[row*n:][:n], d.gates[row*4*n:][:4*n], d.cell[i*n:][:n]
	input, forget, candidate, output := gates[:n], gates[n:2*n], gates[2*n:3*n], gates[3*n:]
	dInput, dForget, dCandidate, dOutput := to[:n], to[n:2*n], to[2*n:3*n], to[3*n:]
	for k, dh := range dHidden[:n] {
		dc := dCell[k] + T(dh*output[k]*(1-T(tanh[k]*tanh[k])))
		dOutput[k] = dh * tanh[k] * output[k] * (1 - output[k])
		dInput[k] = dc * candidate[k] * input[k] * (1 - input[k])
		dForget[k] = dc * before[k] * forget[k] * (1 - forget[k])
		dCandidate[k] = dc * input[k] * (1 - T(candidate[k]*candidate[k]))
		dCell[k] = dc * forget[k]
	}
}

func accumulate[T float](to, x []T) {
	for i, v := range x {
		to[i] += v
	}
}

// lstmState has the trace, the deltas and, where the layer has one, the first
// state.
func lstmState[T float](s lstm) kernel {
	before := make([]T, s.rows()*s.width)
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		t, d := cutTrace(s, data[T](in[0])), cutDeltas(s, data[T](in[1]))
		copy(before[s.width:], t.out)
		for i := range s.batch {
			first := before[i*s.steps*s.width:][:s.width]
			if clear(first); s.started {
				copy(first, row[T](in[2], i, s.width))
			}
		}
		mul(s.width, 4*s.units, s.rows(), whole(before, s.width).t(), whole(d.gates, 4*s.units), 0, whole(data[T](out), 4*s.units))
		return nil
	}
}

func lstmBias[T float](s lstm) kernel {
	scratch := make([]float64, 4*s.units)
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		sumRows(data[T](out), cutDeltas(s, data[T](in[0])).gates, scratch)
		return nil
	}
}

func lstmProjection[T float](s lstm) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		t, d := cutTrace(s, data[T](in[0])), cutDeltas(s, data[T](in[1]))
		mul(s.units, s.width, s.rows(), whole(t.hidden, s.units).t(), whole(d.out, s.width), 0, whole(data[T](out), s.width))
		return nil
	}
}

func lstmFirst[T float](s lstm) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		d := cutDeltas(s, data[T](in[1]))
		mul(s.batch, s.width, 4*s.units, step(d.gates, 0, s.steps, 4*s.units), whole(data[T](in[0]), 4*s.units).t(), 0, whole(data[T](out), s.width))
		return nil
	}
}

func lstmFirstCell[T float](s lstm) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		copy(data[T](out), cutDeltas(s, data[T](in[0])).cell)
		return nil
	}
}
