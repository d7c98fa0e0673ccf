// Package recurrent computes the forward and backward passes of LSTM and GRU
// layers over whole sequences. It knows memory and no graph; package nn makes
// graph operations of its passes.
//
// Sequences lie one after the other: numbers of a layer with batch sequences of
// steps steps have shape (batch*steps, width). A forward pass writes a trace:
// everything that the outputs and the backward pass need. The backward pass
// reads the trace and writes the gradients of the gates. One more pass for each
// input makes the input's gradient of them.
package recurrent

import "github.com/plx-run/plx/trainer/nn/matrix"

// Pass computes all of out from in. It allocates nothing. A pass holds scratch
// memory, so it must not run twice at the same time.
type Pass[T matrix.Float] func(out []T, in [][]T)

// Sizes is what layers of both kinds have.
type Sizes struct {
	Batch, Steps int  // sequences, and steps of each
	In           int  // width of x
	Units        int  // width of the cells of an LSTM, or of the outputs of a GRU
	Started      bool // sequences begin with given outputs (and cells), not with zeros
}

// Rows is the number of steps of all sequences.
func (s Sizes) Rows() int { return s.Batch * s.Steps }

// LSTM is the sizes of a layer of long short-term memory.
//
// Its inputs are, in this order: x (batch*steps, in), the weights of x (in,
// 4*units) and of the state (width, 4*units), the bias (4*units), the
// projection (units, width) if Projected is set, and the first outputs (batch,
// width) and cells (batch, units) if Started is set.
type LSTM struct {
	Sizes
	Width     int     // width of the outputs; Units without a projection
	Projected bool    // outputs are projected
	Forget    float64 // added to the forget gate's bias
}

// TraceLength is the number of elements of the forward pass's trace.
func (s LSTM) TraceLength() int {
	n := s.Rows() * 7 * s.Units
	if s.Projected {
		n += s.Rows() * s.Width
	}
	return n
}

// OutputLength is the number of elements of all outputs: every step's output,
// then the last step's, then the last step's cells.
func (s LSTM) OutputLength() int { return (s.Rows()+s.Batch)*s.Width + s.Batch*s.Units }

// BackwardLength is the number of elements that the backward pass writes.
func (s LSTM) BackwardLength() int {
	n := s.Rows()*4*s.Units + s.Batch*s.Units
	if s.Projected {
		n += s.Rows() * s.Width
	}
	return n
}

// GRU is the sizes of a layer of gated recurrent units.
//
// Its inputs are, in this order: x (batch*steps, in), the weights of x (in,
// 3*units) and of the state (units, 3*units), the bias (3*units), and the first
// outputs (batch, units) if Started is set.
type GRU struct{ Sizes }

// TraceLength is the number of elements of the forward pass's trace.
func (s GRU) TraceLength() int { return s.Rows() * 5 * s.Units }

// OutputLength is the number of elements of all outputs: every step's output,
// then the last step's.
func (s GRU) OutputLength() int { return (s.Rows() + s.Batch) * s.Units }

// BackwardLength is the number of elements that the backward pass writes.
func (s GRU) BackwardLength() int { return s.Rows()*6*s.Units + s.Batch*s.Units }

// step is the t-th step of all sequences in memory (batch*steps, width).
func step[T matrix.Float](x []T, t, steps, width int) matrix.Matrix[T] {
	return matrix.Strided(x[t*width:], steps*width)
}

// copyLast copies the last step of all sequences of x (batch*steps, width) and
// returns the memory after the copy.
func copyLast[T matrix.Float](to, x []T, batch, steps, width int) []T {
	last := step(x, steps-1, steps, width)
	for i := range batch {
		to = to[copy(to, last.Row(i, width)):]
	}
	return to
}

// delay writes the outputs of the step before each step: out (batch*steps,
// width), moved by a step. Sequences begin with first, which has one element if
// they are started; without it they begin with zeros.
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
