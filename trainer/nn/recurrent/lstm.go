package recurrent

import (
	"github.com/plx-run/plx/trainer/nn/exponential"
	"github.com/plx-run/plx/trainer/nn/matrix"
)

// traces are the parts of an LSTM's trace, the intermediate results that the
// backward pass needs. The first dimension of each is batch*steps; its comment
// gives the second.
type traces[T matrix.Float] struct {
	gates  []T // second dimension 4*units: the gates after sigmoid or tanh
	cell   []T // second dimension units: the cell states
	tanh   []T // second dimension units: tanh of the cell states
	hidden []T // second dimension units: output gate times tanh of the cell states
	out    []T // second dimension width: the outputs; the same memory as hidden if there is no projection
}

func cutTrace[T matrix.Float](s LSTM, x []T) (t traces[T]) {
	n := s.Rows() * s.Units
	t.gates, x = x[:4*n], x[4*n:]
	t.cell, x = x[:n], x[n:]
	t.tanh, x = x[:n], x[n:]
	t.hidden, x = x[:n], x[n:]
	if t.out = t.hidden; s.Projected {
		t.out = x
	}
	return t
}

// weights are the inputs of an LSTM layer.
type weights[T matrix.Float] struct {
	x, input, state, bias, projection []T
	first, cell                       matrix.Matrix[T]
}

// cutInputs splits the list of a layer's inputs. If s.Started is false, the
// initial outputs and cells are zeros.
func cutInputs[T matrix.Float](s LSTM, in [][]T, zeros []T) weights[T] {
	w := weights[T]{x: in[0], input: in[1], state: in[2], bias: in[3],
		first: matrix.Strided(zeros, 0), cell: matrix.Strided(zeros, 0)}
	in = in[4:]
	if s.Projected {
		w.projection, in = in[0], in[1:]
	}
	if s.Started {
		w.first, w.cell = matrix.Whole(in[0], s.Width), matrix.Whole(in[1], s.Units)
	}
	return w
}

// LSTMForward returns the forward pass of an LSTM. The pass reads the layer's
// inputs and writes the trace (intermediate results that the backward pass
// needs).
func LSTMForward[T matrix.Float](s LSTM) Pass[T] {
	zeros := make([]T, s.Units)
	return func(out []T, in [][]T) {
		t, w := cutTrace(s, out), cutInputs(s, in, zeros)
		matrix.Fill(t.gates, w.bias)
		matrix.Mul(s.Rows(), 4*s.Units, s.In, matrix.Whole(w.x, s.In), matrix.Whole(w.input, 4*s.Units), 1, matrix.Whole(t.gates, 4*s.Units))
		cell := w.cell
		for at := range s.Steps {
			gates := step(t.gates, at, s.Steps, 4*s.Units)
			if at > 0 {
				before := step(t.out, at-1, s.Steps, s.Width)
				matrix.Mul(s.Batch, 4*s.Units, s.Width, before, matrix.Whole(w.state, 4*s.Units), 1, gates)
			} else if s.Started {
				matrix.Mul(s.Batch, 4*s.Units, s.Width, w.first, matrix.Whole(w.state, 4*s.Units), 1, gates)
			}
			for i := range s.Batch {
				lstmStep(s, t, i*s.Steps+at, cell.Row(i, s.Units))
			}
			if s.Projected {
				hidden, to := step(t.hidden, at, s.Steps, s.Units), step(t.out, at, s.Steps, s.Width)
				matrix.Mul(s.Batch, s.Width, s.Units, hidden, matrix.Whole(w.projection, s.Width), 0, to)
			}
			cell = step(t.cell, at, s.Steps, s.Units)
		}
	}
}

// lstmStep computes one row of the trace (intermediate results that the
// backward pass needs) from the row's gates. The slice before holds the cell
// states of the previous step.
func lstmStep[T matrix.Float](s LSTM, t traces[T], row int, before []T) {
	n := s.Units
	gates, cell, tanh, hidden := t.gates[row*4*n:][:4*n], t.cell[row*n:][:n], t.tanh[row*n:][:n], t.hidden[row*n:][:n]
	if s.Forget != 0 {
		for k := range cell {
			gates[n+k] += T(s.Forget)
		}
	}
	exponential.Sigmoids(gates[:2*n])
	exponential.Tanhs(gates[2*n:3*n], gates[2*n:3*n])
	exponential.Sigmoids(gates[3*n:])
	input, forget, candidate, output := gates[:n], gates[n:2*n], gates[2*n:3*n], gates[3*n:]
	for k := range cell {
		cell[k] = T(forget[k]*before[k]) + T(input[k]*candidate[k])
	}
	exponential.Tanhs(tanh, cell)
	for k := range hidden {
		hidden[k] = output[k] * tanh[k]
	}
}

// LSTMOutputs returns a pass that copies the outputs from the trace
// (intermediate results of the forward pass), which is the last of its inputs.
func LSTMOutputs[T matrix.Float](s LSTM) Pass[T] {
	return func(out []T, in [][]T) {
		t := cutTrace(s, in[len(in)-1])
		to := copyLast(out[copy(out, t.out[:s.Rows()*s.Width]):], t.out, s.Batch, s.Steps, s.Width)
		copyLast(to, t.cell, s.Batch, s.Steps, s.Units)
	}
}

// deltas are the parts of the backward pass's result, all gradients.
type deltas[T matrix.Float] struct {
	gates []T // (batch*steps, 4*units): gradient of the gates before sigmoid or tanh
	cell  []T // (batch, units): gradient of the cell states before the first step
	out   []T // (batch*steps, width): gradient of the outputs; empty if there is no projection
}

func cutDeltas[T matrix.Float](s LSTM, x []T) (d deltas[T]) {
	d.gates, x = x[:s.Rows()*4*s.Units], x[s.Rows()*4*s.Units:]
	d.cell, d.out = x[:s.Batch*s.Units], x[s.Batch*s.Units:]
	return d
}

// LSTMBackward returns the backward pass of an LSTM. The pass reads the
// layer's inputs, the trace (intermediate results of the forward pass) and the
// gradient of the outputs.
func LSTMBackward[T matrix.Float](s LSTM) Pass[T] {
	zeros, out, hidden := make([]T, s.Units), make([]T, s.Batch*s.Width), make([]T, s.Batch*s.Units)
	return func(to []T, in [][]T) {
		w, t, d := cutInputs(s, in, zeros), cutTrace(s, in[len(in)-2]), cutDeltas(s, to)
		dy := in[len(in)-1]
		last := matrix.Whole(dy[s.Rows()*s.Width:], s.Width)
		copy(d.cell, dy[(s.Rows()+s.Batch)*s.Width:])
		for at := s.Steps - 1; at >= 0; at-- {
			dOut := matrix.Whole(out, s.Width)
			dHidden := dOut
			if s.Projected {
				dOut, dHidden = step(d.out, at, s.Steps, s.Width), matrix.Whole(hidden, s.Units)
			}
			for i := range s.Batch {
				copy(dOut.Row(i, s.Width), dy[(i*s.Steps+at)*s.Width:])
				if at == s.Steps-1 {
					accumulate(dOut.Row(i, s.Width), last.Row(i, s.Width))
				}
			}
			if at < s.Steps-1 {
				matrix.Mul(s.Batch, s.Width, 4*s.Units, step(d.gates, at+1, s.Steps, 4*s.Units), matrix.Whole(w.state, 4*s.Units).T(), 1, dOut)
			}
			if s.Projected {
				matrix.Mul(s.Batch, s.Units, s.Width, dOut, matrix.Whole(w.projection, s.Width).T(), 0, dHidden)
			}
			before := w.cell
			if at > 0 {
				before = step(t.cell, at-1, s.Steps, s.Units)
			}
			for i := range s.Batch {
				lstmStepBack(s, t, d, i, at, before.Row(i, s.Units), dHidden.Row(i, s.Units))
			}
		}
	}
}

// lstmStepBack computes the gradients of one row's gates from the gradients of
// its hidden values and cell states. It overwrites the gradient of the cell
// states with the gradient of the previous step's cell states.
func lstmStepBack[T matrix.Float](s LSTM, t traces[T], d deltas[T], i, at int, before, dHidden []T) {
	n, row := s.Units, i*s.Steps+at
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

// LSTMStateGradient returns a pass that computes the gradient of the state's
// weights. The pass reads the trace (intermediate results of the forward
// pass), the backward pass's result and, if s.Started, the outputs before the
// first step.
func LSTMStateGradient[T matrix.Float](s LSTM) Pass[T] {
	before := make([]T, s.Rows()*s.Width)
	return func(out []T, in [][]T) {
		t, d := cutTrace(s, in[0]), cutDeltas(s, in[1])
		delay(before, t.out, in[2:], s.Batch, s.Width)
		matrix.Mul(s.Width, 4*s.Units, s.Rows(), matrix.Whole(before, s.Width).T(), matrix.Whole(d.gates, 4*s.Units), 0, matrix.Whole(out, 4*s.Units))
	}
}

// LSTMBiasGradient returns a pass that computes the gradient of the bias from
// the backward pass's result.
func LSTMBiasGradient[T matrix.Float](s LSTM) Pass[T] {
	scratch := make([]float64, 4*s.Units)
	return func(out []T, in [][]T) {
		matrix.SumRows(out, cutDeltas(s, in[0]).gates, scratch)
	}
}

// LSTMProjectionGradient returns a pass that computes the gradient of the
// projection's weights. The pass reads the trace (intermediate results of the
// forward pass) and the backward pass's result.
func LSTMProjectionGradient[T matrix.Float](s LSTM) Pass[T] {
	return func(out []T, in [][]T) {
		t, d := cutTrace(s, in[0]), cutDeltas(s, in[1])
		matrix.Mul(s.Units, s.Width, s.Rows(), matrix.Whole(t.hidden, s.Units).T(), matrix.Whole(d.out, s.Width), 0, matrix.Whole(out, s.Width))
	}
}

// LSTMFirstGradient returns a pass that computes the gradient of the outputs
// before the first step. The pass reads the state's weights and the backward
// pass's result.
func LSTMFirstGradient[T matrix.Float](s LSTM) Pass[T] {
	return func(out []T, in [][]T) {
		d := cutDeltas(s, in[1])
		matrix.Mul(s.Batch, s.Width, 4*s.Units, step(d.gates, 0, s.Steps, 4*s.Units), matrix.Whole(in[0], 4*s.Units).T(), 0, matrix.Whole(out, s.Width))
	}
}

// LSTMFirstCellGradient returns a pass that copies the gradient of the cell
// states before the first step from the backward pass's result.
func LSTMFirstCellGradient[T matrix.Float](s LSTM) Pass[T] {
	return func(out []T, in [][]T) {
		copy(out, cutDeltas(s, in[0]).cell)
	}
}
