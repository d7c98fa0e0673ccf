package nn

import "gorgonia.org/gorgonia"

// gruPieces are the pieces of a trace, each (batch*steps, width of its own).
type gruPieces[T float] struct {
	gates   []T // 3*units, after their functions
	product []T // units: the state's part of the candidate
	out     []T // units
}

func cutGRU[T float](s gru, x []T) gruPieces[T] {
	n := s.rows() * s.units
	return gruPieces[T]{x[:3*n], x[3*n : 4*n], x[4*n:]}
}

// gruFrom is what the first step begins with. zeros stands for none.
func gruFrom[T float](s gru, in []gorgonia.Value, zeros []T) block[T] {
	if s.started {
		return whole(data[T](in[4]), s.units)
	}
	return block[T]{data: zeros}
}

// gruTrace is the forward pass.
func gruTrace[T float](s gru) kernel {
	zeros, products := make([]T, s.units), make([]T, s.batch*3*s.units)
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		t, x, input, state := cutGRU(s, data[T](out)), data[T](in[0]), data[T](in[1]), data[T](in[2])
		fill(t.gates, data[T](in[3]))
		mul(s.rows(), 3*s.units, s.in, whole(x, s.in), whole(input, 3*s.units), 1, whole(t.gates, 3*s.units))
		before := gruFrom(s, in, zeros)
		clear(products)
		for at := range s.steps {
			if at > 0 || s.started {
				mul(s.batch, 3*s.units, s.units, before, whole(state, 3*s.units), 0, whole(products, 3*s.units))
			}
			for i := range s.batch {
				gruStep(s, t, i*s.steps+at, products[i*3*s.units:][:3*s.units], before.row(i, s.units))
			}
			before = step(t.out, at, s.steps, s.units)
		}
		return nil
	}
}

// gruStep makes one row of a trace from its gates' part of the input, the
// state's part and the state before.
func gruStep[T float](s gru, t gruPieces[T], row int, products, before []T) {
	n := s.units
	gates, out := t.gates[row*3*n:][:3*n], t.out[row*n:][:n]
	accumulate(gates[:2*n], products[:2*n])
	sigmoids(gates[:2*n])
	reset, update, candidate, product := gates[:n], gates[n:2*n], gates[2*n:], products[2*n:]
	copy(t.product[row*n:], product)
	for k, v := range product {
		candidate[k] += T(reset[k] * v)
	}
	tanhs(candidate, candidate)
	for k, u := range update {
		out[k] = T((1-u)*candidate[k]) + T(u*before[k])
	}
}

// gruGive copies what the layer gives out of its trace, the last input.
func gruGive[T float](s gru) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		t, to := cutGRU(s, data[T](in[len(in)-1])), data[T](out)
		to = to[copy(to, t.out):]
		last := step(t.out, s.steps-1, s.steps, s.units)
		for i := range s.batch {
			to = to[copy(to, last.row(i, s.units)):]
		}
		return nil
	}
}

// gruDelta are the pieces of what the backward pass computes: the gradients of
// the input's part of the gates and of the state's, each (batch*steps,
// 3*units), and of the first state, (batch, units).
type gruDelta[T float] struct{ input, state, first []T }

func cutGRUDelta[T float](s gru, x []T) gruDelta[T] {
	n := s.rows() * 3 * s.units
	return gruDelta[T]{x[:n], x[n : 2*n], x[2*n:]}
}

// gruDeltas is the backward pass. It has the layer's inputs, the trace and the
// gradient of what the layer gives.
func gruDeltas[T float](s gru) kernel {
	zeros := make([]T, s.units)
	return func(to gorgonia.Value, in []gorgonia.Value) error {
		t, d, dy := cutGRU(s, data[T](in[len(in)-2])), cutGRUDelta(s, data[T](to)), data[T](in[len(in)-1])
		copy(d.first, dy[s.rows()*s.units:])
		for at := s.steps - 1; at >= 0; at-- {
			before := gruFrom(s, in, zeros)
			if at > 0 {
				before = step(t.out, at-1, s.steps, s.units)
			}
			for i := range s.batch {
				accumulate(d.first[i*s.units:], dy[(i*s.steps+at)*s.units:][:s.units])
				gruStepBack(s, t, d, i, at, before.row(i, s.units))
			}
			mul(s.batch, s.units, 3*s.units, step(d.state, at, s.steps, 3*s.units), whole(data[T](in[2]), 3*s.units).t(), 1, whole(d.first, s.units))
		}
		return nil
	}
}

// gruStepBack makes the gradients of one row's gates from that of what it
// gives, which becomes the part of the state before that does not go through
// the gates.
func gruStepBack[T float](s gru, t gruPieces[T], d gruDelta[T], i, at int, before []T) {
	n, row := s.units, i*s.steps+at
	gates, product, dOut := t.gates[row*3*n:][:3*n], t.product[row*n:][:n], d.first[i*n:][:n]
	reset, update, candidate := gates[:n], gates[n:2*n], gates[2*n:]
	input, state := d.input[row*3*n:][:3*n], d.state[row*3*n:][:3*n]
	for k, dh := range dOut {
		dCandidate := dh * (1 - update[k]) * (1 - T(candidate[k]*candidate[k]))
		input[k] = dCandidate * product[k] * reset[k] * (1 - reset[k])
		input[n+k] = dh * (before[k] - candidate[k]) * update[k] * (1 - update[k])
		input[2*n+k] = dCandidate
		state[2*n+k] = dCandidate * reset[k]
		dOut[k] = dh * update[k]
	}
	copy(state, input[:2*n])
}

func gruX[T float](s gru) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		d := cutGRUDelta(s, data[T](in[1]))
		mul(s.rows(), s.in, 3*s.units, whole(d.input, 3*s.units), whole(data[T](in[0]), 3*s.units).t(), 0, whole(data[T](out), s.in))
		return nil
	}
}

func gruInput[T float](s gru) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		d := cutGRUDelta(s, data[T](in[1]))
		mul(s.in, 3*s.units, s.rows(), whole(data[T](in[0]), s.in).t(), whole(d.input, 3*s.units), 0, whole(data[T](out), 3*s.units))
		return nil
	}
}

// gruState has the trace, the deltas and, where the layer has one, the first
// state.
func gruState[T float](s gru) kernel {
	before := make([]T, s.rows()*s.units)
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		t, d := cutGRU(s, data[T](in[0])), cutGRUDelta(s, data[T](in[1]))
		copy(before[s.units:], t.out)
		for i := range s.batch {
			first := before[i*s.steps*s.units:][:s.units]
			if clear(first); s.started {
				copy(first, row[T](in[2], i, s.units))
			}
		}
		mul(s.units, 3*s.units, s.rows(), whole(before, s.units).t(), whole(d.state, 3*s.units), 0, whole(data[T](out), 3*s.units))
		return nil
	}
}

func gruBias[T float](s gru) kernel {
	scratch := make([]float64, 3*s.units)
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		sumRows(data[T](out), cutGRUDelta(s, data[T](in[0])).input, scratch)
		return nil
	}
}

func gruFirst[T float](s gru) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		copy(data[T](out), cutGRUDelta(s, data[T](in[0])).first)
		return nil
	}
}
