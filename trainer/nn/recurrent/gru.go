package recurrent

import (
	"github.com/plx-run/plx/trainer/nn/exponential"
	"github.com/plx-run/plx/trainer/nn/matrix"
)

// gruPieces are the pieces of a trace, each of shape (batch*steps, ...).
type gruPieces[T matrix.Float] struct {
	gates   []T // 3*units, after their functions
	product []T // units: the product of state and weights that belongs to the candidate
	out     []T // units
}

func cutGRU[T matrix.Float](s GRU, x []T) gruPieces[T] {
	n := s.Rows() * s.Units
	return gruPieces[T]{x[:3*n], x[3*n : 4*n], x[4*n:]}
}

// gruFrom is the state that the first step begins with. A layer that is not
// started begins with zeros.
func gruFrom[T matrix.Float](s GRU, in [][]T, zeros []T) matrix.Matrix[T] {
	if s.Started {
		return matrix.Whole(in[4], s.Units)
	}
	return matrix.Strided(zeros, 0)
}

// GRUForward is the forward pass. It takes the layer's inputs and writes the
// trace.
func GRUForward[T matrix.Float](s GRU) Pass[T] {
	zeros, products := make([]T, s.Units), make([]T, s.Batch*3*s.Units)
	return func(out []T, in [][]T) {
		t, x, input, state := cutGRU(s, out), in[0], in[1], in[2]
		matrix.Fill(t.gates, in[3])
		matrix.Mul(s.Rows(), 3*s.Units, s.In, matrix.Whole(x, s.In), matrix.Whole(input, 3*s.Units), 1, matrix.Whole(t.gates, 3*s.Units))
		before := gruFrom(s, in, zeros)
		clear(products)
		for at := range s.Steps {
			if at > 0 || s.Started {
				matrix.Mul(s.Batch, 3*s.Units, s.Units, before, matrix.Whole(state, 3*s.Units), 0, matrix.Whole(products, 3*s.Units))
			}
			for i := range s.Batch {
				gruStep(s, t, i*s.Steps+at, products[i*3*s.Units:][:3*s.Units], before.Row(i, s.Units))
			}
			before = step(t.out, at, s.Steps, s.Units)
		}
	}
}

// gruStep computes one row of a trace from the input's part of its gates, the
// state's part and the state of the step before.
func gruStep[T matrix.Float](s GRU, t gruPieces[T], row int, products, before []T) {
	n := s.Units
	gates, out := t.gates[row*3*n:][:3*n], t.out[row*n:][:n]
	accumulate(gates[:2*n], products[:2*n])
	exponential.Sigmoids(gates[:2*n])
	reset, update, candidate, product := gates[:n], gates[n:2*n], gates[2*n:], products[2*n:]
	copy(t.product[row*n:], product)
	for k, v := range product {
		candidate[k] += T(reset[k] * v)
	}
	exponential.Tanhs(candidate, candidate)
	for k, u := range update {
		out[k] = T((1-u)*candidate[k]) + T(u*before[k])
	}
}

// GRUOutputs copies the outputs from the trace, which is its last input.
func GRUOutputs[T matrix.Float](s GRU) Pass[T] {
	return func(out []T, in [][]T) {
		t := cutGRU(s, in[len(in)-1])
		copyLast(out[copy(out, t.out):], t.out, s.Batch, s.Steps, s.Units)
	}
}

// gruDelta are the pieces that the backward pass writes: gradients.
type gruDelta[T matrix.Float] struct {
	input []T // (batch*steps, 3*units): gradient of what the input adds to the gates
	state []T // (batch*steps, 3*units): gradient of what the state adds to the gates
	first []T // (batch, units): gradient of the first state
}

func cutGRUDelta[T matrix.Float](s GRU, x []T) gruDelta[T] {
	n := s.Rows() * 3 * s.Units
	return gruDelta[T]{x[:n], x[n : 2*n], x[2*n:]}
}

// GRUBackward is the backward pass. It takes the layer's inputs, the trace and
// the gradient of the outputs.
func GRUBackward[T matrix.Float](s GRU) Pass[T] {
	zeros := make([]T, s.Units)
	return func(to []T, in [][]T) {
		t, d, dy := cutGRU(s, in[len(in)-2]), cutGRUDelta(s, to), in[len(in)-1]
		copy(d.first, dy[s.Rows()*s.Units:])
		for at := s.Steps - 1; at >= 0; at-- {
			before := gruFrom(s, in, zeros)
			if at > 0 {
				before = step(t.out, at-1, s.Steps, s.Units)
			}
			for i := range s.Batch {
				accumulate(d.first[i*s.Units:], dy[(i*s.Steps+at)*s.Units:][:s.Units])
				gruStepBack(s, t, d, i, at, before.Row(i, s.Units))
			}
			matrix.Mul(s.Batch, s.Units, 3*s.Units, step(d.state, at, s.Steps, 3*s.Units), matrix.Whole(in[2], 3*s.Units).T(), 1, matrix.Whole(d.first, s.Units))
		}
	}
}

// gruStepBack computes the gradients of one row's gates from the gradient of its
// output. It replaces the latter by the part of the gradient of the state before
// that does not go through the gates.
func gruStepBack[T matrix.Float](s GRU, t gruPieces[T], d gruDelta[T], i, at int, before []T) {
	n, row := s.Units, i*s.Steps+at
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

// GRUStateGradient is the gradient of the state's weights. It takes the trace,
// what the backward pass wrote and, if the layer is started, the first state.
func GRUStateGradient[T matrix.Float](s GRU) Pass[T] {
	before := make([]T, s.Rows()*s.Units)
	return func(out []T, in [][]T) {
		t, d := cutGRU(s, in[0]), cutGRUDelta(s, in[1])
		delay(before, t.out, in[2:], s.Batch, s.Units)
		matrix.Mul(s.Units, 3*s.Units, s.Rows(), matrix.Whole(before, s.Units).T(), matrix.Whole(d.state, 3*s.Units), 0, matrix.Whole(out, 3*s.Units))
	}
}

// GRUBiasGradient takes what the backward pass wrote.
func GRUBiasGradient[T matrix.Float](s GRU) Pass[T] {
	scratch := make([]float64, 3*s.Units)
	return func(out []T, in [][]T) {
		matrix.SumRows(out, cutGRUDelta(s, in[0]).input, scratch)
	}
}

// GRUFirstGradient takes what the backward pass wrote.
func GRUFirstGradient[T matrix.Float](s GRU) Pass[T] {
	return func(out []T, in [][]T) {
		copy(out, cutGRUDelta(s, in[0]).first)
	}
}
