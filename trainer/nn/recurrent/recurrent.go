// Package recurrent computes the forward and backward passes of LSTM and GRU
// layers over whole sequences. It works on slices and does not depend on
// graphs; package nn/ops wraps its passes as graph operations.
//
// Sequences are stored one after the other: for batch sequences of equal
// length, values have shape (batch*steps, width). The forward pass writes a
// trace, the intermediate results that the outputs and the backward pass need.
// The backward pass reads the trace and writes the gradients of the gates.
// From these gradients, a separate pass for each input computes that input's
// gradient.
package recurrent

import "github.com/plx-run/plx/trainer/nn/matrix"

// Pass computes out from in without allocating memory. A pass has its own
// scratch memory, so only one goroutine may call it at a time.
type Pass[T matrix.Float] func(out []T, in [][]T)

// Sizes are the parameters that LSTM and GRU layers have in common.
type Sizes struct {
	Batch, Steps int  // number of sequences, and number of steps of each sequence
	In           int  // width of the layer's input x
	Units        int  // width of an LSTM's cell state, or of a GRU's outputs
	Started      bool // true if the initial state (outputs and cells) is an input of the layer; false means zeros
}

// Rows is the number of steps in all sequences together.
func (s Sizes) Rows() int { return s.Batch * s.Steps }

// LSTM holds the sizes of a long short-term memory layer.
//
// The layer's inputs are, in this order: x (batch*steps, in), the weights of x
// (in, 4*units), the weights of the state (width, 4*units) and the bias
// (4*units). If Projected is set, the projection (units, width) follows. If
// Started is set, the initial outputs (batch, width) and cell states (batch,
// units) follow.
type LSTM struct {
	Sizes
	Width     int     // width of the outputs; equal to Units if Projected is false
	Projected bool    // true if a projection maps the hidden values to the outputs
	Forget    float64 // added to the forget gate's bias
}

// TraceLength is the number of elements in the trace: the intermediate results
// that the forward pass writes for the backward pass.
func (s LSTM) TraceLength() int {
	n := s.Rows() * 7 * s.Units
	if s.Projected {
		n += s.Rows() * s.Width
	}
	return n
}

// OutputLength is the number of elements of all outputs: every step's output,
// then the last step's output again, then the last step's cells.
func (s LSTM) OutputLength() int { return (s.Rows()+s.Batch)*s.Width + s.Batch*s.Units }

// BackwardLength is the number of elements in the backward pass's result.
func (s LSTM) BackwardLength() int {
	n := s.Rows()*4*s.Units + s.Batch*s.Units
	if s.Projected {
		n += s.Rows() * s.Width
	}
	return n
}

// GRU holds the sizes of a layer of gated recurrent units.
//
// The layer's inputs are, in this order: x (batch*steps, in), the weights of x
// (in, 3*units), the weights of the state (units, 3*units) and the bias
// (3*units). If Started is set, the initial outputs (batch, units) follow.
type GRU struct{ Sizes }

// TraceLength is the number of elements in the trace: the intermediate results
// that the forward pass writes for the backward pass.
func (s GRU) TraceLength() int { return s.Rows() * 5 * s.Units }

// OutputLength is the number of elements of all outputs: every step's output,
// then the last step's output again.
func (s GRU) OutputLength() int { return (s.Rows() + s.Batch) * s.Units }

// BackwardLength is the number of elements in the backward pass's result.
func (s GRU) BackwardLength() int { return s.Rows()*6*s.Units + s.Batch*s.Units }

// step returns step t of all sequences in x (batch*steps, width), as a matrix
// with one row per sequence.
func step[T matrix.Float](x []T, t, steps, width int) matrix.Matrix[T] {
	return matrix.Strided(x[t*width:], steps*width)
}

// copyLast copies the last step of each sequence in x (batch*steps, width) to
// a slice (to). It returns the part of the slice after the copied elements.
func copyLast[T matrix.Float](to, x []T, batch, steps, width int) []T {
	last := step(x, steps-1, steps, width)
	for i := range batch {
		to = to[copy(to, last.Row(i, width)):]
	}
	return to
}

// delay shifts the outputs out (batch*steps, width) by one step and writes
// them to a slice (to). So each step gets the output of the previous step. The
// first step of each sequence gets the initial outputs in first[0], or zeros
// if first is empty.
func delay[T matrix.Float](to, out []T, first [][]T, batch, width int) {
	copy(to[width:], out)
	for i := range batch {
		row := to[i*(len(to)/batch):][:width]
		if clear(row); len(first) > 0 {
			copy(row, first[0][i*width:])
		}
	}
}

func accumulate[T matrix.Float](to, x []T) {
	for i, v := range x {
		to[i] += v
	}
}
