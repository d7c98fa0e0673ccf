package recurrent

import (
	"github.com/plx-run/plx/trainer/nn/exponential"
	"github.com/plx-run/plx/trainer/nn/matrix"
)

// gruPieces are the parts of a GRU's trace, the intermediate results that the
// backward pass needs. The first dimension of each is batch*steps; its comment
// gives the second.
type gruPieces[T matrix.Float] struct {
	gates   []T // second dimension 3*units: the gates after sigmoid or tanh
	product []T // second dimension units: the candidate's part of the product of state and weights
	out     []T // second dimension units: the outputs, which are also the state of the next step
}

func cutGRU[T matrix.Float](s GRU, x []T) gruPieces[T] {
	n := s.Rows() * s.Units
	return gruPieces[T]{x[:3*n], x[3*n : 4*n], x[4*n:]}
}

// gruFrom returns the state before the first step: the layer's last input if
// s.Started is true, zeros if it is false.
func gruFrom[T matrix.Float](s GRU, in [][]T, zeros []T) matrix.Matrix[T] {
	if s.Started {
		return matrix.Whole(in[4], s.Units)
	}
	return matrix.Strided(zeros, 0)
}

// GRUForward returns the forward pass of a GRU. The pass reads the layer's
// inputs and writes the trace (intermediate results that the backward pass
// needs).
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

// gruStep computes one row of the trace (intermediate results that the
// backward pass needs). The gates of the row already contain the contribution
// of the input. products is the contribution of the state. before is the state
// of the previous step.
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

// GRUOutputs returns a pass that copies the outputs from the trace
// (intermediate results of the forward pass), which is the last of its inputs.
func GRUOutputs[T matrix.Float](s GRU) Pass[T] {
	return func(out []T, in [][]T) {
		t := cutGRU(s, in[len(in)-1])
		copyLast(out[copy(out, t.out):], t.out, s.Batch, s.Steps, s.Units)
	}
}

// gruDelta are the parts of the backward pass's result, all gradients.
type gruDelta[T matrix.Float] struct {
	input []T // (batch*steps, 3*units): gradient of the input's contribution to the gates
	state []T // (batch*steps, 3*units): gradient of the state's contribution to the gates
	first []T // (batch, units): gradient of the state before the first step
}

func cutGRUDelta[T matrix.Float](s GRU, x []T) gruDelta[T] {
	n := s.Rows() * 3 * s.Units
	return gruDelta[T]{x[:n], x[n : 2*n], x[2*n:]}
}

// GRUBackward returns the backward pass of a GRU. The pass reads the layer's
// inputs, the trace (intermediate results of the forward pass) and the
// gradient of the outputs.
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

// gruStepBack computes the gradients of one row's gates from the gradient of
// its output, which is in d.first. It then overwrites that gradient with one
// part of the gradient of the previous state: the part that does not pass
// through the gates.
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

// GRUStateGradient returns a pass that computes the gradient of the state's
// weights. The pass reads the trace (intermediate results of the forward
// pass), the backward pass's result and, if s.Started, the state before the
// first step.
func GRUStateGradient[T matrix.Float](s GRU) Pass[T] {
	before := make([]T, s.Rows()*s.Units)
	return func(out []T, in [][]T) {
		t, d := cutGRU(s, in[0]), cutGRUDelta(s, in[1])
		delay(before, t.out, in[2:], s.Batch, s.Units)
		matrix.Mul(s.Units, 3*s.Units, s.Rows(), matrix.Whole(before, s.Units).T(), matrix.Whole(d.state, 3*s.Units), 0, matrix.Whole(out, 3*s.Units))
	}
}

// GRUBiasGradient returns a pass that computes the gradient of the bias from
// the backward pass's result.
func GRUBiasGradient[T matrix.Float](s GRU) Pass[T] {
	scratch := make([]float64, 3*s.Units)
	return func(out []T, in [][]T) {
		matrix.SumRows(out, cutGRUDelta(s, in[0]).input, scratch)
	}
}

// GRUFirstGradient returns a pass that copies the gradient of the state before
// the first step from the backward pass's result.
func GRUFirstGradient[T matrix.Float](s GRU) Pass[T] {
	return func(out []T, in [][]T) {
		copy(out, cutGRUDelta(s, in[0]).first)
	}
}
