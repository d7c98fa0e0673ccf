package recurrent

import (
	"github.com/plx-run/plx/trainer/nn/exponential"
	"github.com/plx-run/plx/trainer/nn/matrix"
)

// traces are the pieces of a trace, each of shape (batch*steps, ...).
type traces[T matrix.Float] struct {
	gates  []T // 4*units, after their functions
	cell   []T // units
	tanh   []T // units: of the cell
	hidden []T // units: output gate times tanh
	out    []T // width: the outputs; the same memory as hidden without a projection
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

// weights are a layer's inputs.
type weights[T matrix.Float] struct {
	x, input, state, bias, projection []T
	first, cell                       matrix.Matrix[T]
}

// cutInputs finds the inputs. A layer that is not started begins with zeros.
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

// LSTMForward is the forward pass. It takes the layer's inputs and writes the
// trace.
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

// lstmStep computes one row of a trace from its gates and the cells of the step
// before.
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

// LSTMOutputs copies the outputs from the trace, which is its last input.
func LSTMOutputs[T matrix.Float](s LSTM) Pass[T] {
	return func(out []T, in [][]T) {
		t, to := cutTrace(s, in[len(in)-1]), out
		to = to[copy(to, t.out[:s.Rows()*s.Width]):]
		last := step(t.out, s.Steps-1, s.Steps, s.Width)
		for i := range s.Batch {
			to = to[copy(to, last.Row(i, s.Width)):]
		}
		last = step(t.cell, s.Steps-1, s.Steps, s.Units)
		for i := range s.Batch {
			to = to[copy(to, last.Row(i, s.Units)):]
		}
	}
}
