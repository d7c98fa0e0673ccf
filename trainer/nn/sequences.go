package nn

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer"
)

// Embedding makes a table whose rows are looked up by index, see
// [trainer.Embedding]. Its initial values are uniform over (-bound, bound). A
// partitioner lets the trainer divide the table into parts, see
// [trainer.Partitioner].
func (b *Builder) Embedding(name string, rows, width int, bound float64, partitioner ...trainer.Partition) *trainer.Embedding {
	if !(bound >= 0 && bound <= math.MaxFloat32) {
		b.m.keep(fmt.Errorf("embedding %q: its rows start from -%v to %v, want a number from 0 on", name, bound, bound))
	}
	var p trainer.Partition
	if len(partitioner) > 0 {
		p = partitioner[0]
	}
	return b.m.declare(&trainer.Embedding{Name: name, Rows: rows, Width: width, Dtype: b.m.dtype,
		First: trainer.UniformRows(b.m.seed, -bound, bound), Partitioner: p})
}

// Lookup returns n rows of a table, of shape (n, width). The parameter input
// is the name under which the program feeds the indices of the rows. If each
// row of the batch is a sequence of indices, n is Batch times the number of
// steps of a sequence.
func (b *Builder) Lookup(table *trainer.Embedding, input string, n int) *Node {
	return b.m.lookup(table, input, n)
}

// Recurrent holds the sizes and the initial state of a recurrent layer.
type Recurrent struct {
	Units int // number of cells
	Steps int // number of steps of each sequence
	// Width is the width of the outputs of an LSTM. If it is neither 0 nor
	// Units, a projection maps the cells' outputs to this width. A GRU has no
	// projection and requires 0 or Units.
	Width int
	// First (batch, width) holds the outputs before the first step. FirstCell
	// (batch, units) holds the cell states of an LSTM before the first step.
	// nil means zeros.
	First, FirstCell *Node
}

// LSTM adds an [ops.LSTM] over x (batch*steps, features). Its variables are
// .input, .state, .bias and, with a projection, .projection, each prefixed
// with the layer's name. The forget gate's bias is increased by 1, so that an
// untrained layer tends to keep its cells.
func (b *Builder) LSTM(name string, x *Node, r Recurrent) Sequence {
	if r.Width == 0 {
		r.Width = r.Units
	}
	w, ok := b.m.gates(name, x, r, 4)
	if !ok {
		return Sequence{}
	}
	l := LSTM{X: x, Input: w[0], State: w[1], Bias: w[2], Forget: 1, First: r.First, FirstCell: r.FirstCell}
	if r.Width != r.Units {
		l.Projection = b.Variable(name+".projection", Glorot(), r.Units, r.Width)
	}
	return b.m.sequence(name, r.Steps, l.Over)
}

// GRU adds an [ops.GRU] over x (batch*steps, features). Its variables are
// .input, .state and .bias, each prefixed with the layer's name.
func (b *Builder) GRU(name string, x *Node, r Recurrent) Sequence {
	if r.FirstCell != nil || r.Width != 0 && r.Width != r.Units {
		b.m.keep(fmt.Errorf("%s: a GRU has no cells and no projection: leave FirstCell and Width out", layer(name)))
	}
	r.Width = r.Units
	w, ok := b.m.gates(name, x, r, 3)
	if !ok {
		return Sequence{}
	}
	return b.m.sequence(name, r.Steps, GRU{X: x, Input: w[0], State: w[1], Bias: w[2], First: r.First}.Over)
}

// gates adds the variables of a recurrent layer with the given number of
// gates. It returns the weights of the input, the weights of the state, and
// the bias. ok is false after an error.
func (m *collected) gates(name string, x *Node, r Recurrent, gates int) (w [3]*Node, ok bool) {
	if !m.claim(name) || !m.ranked(layer(name), x, 2, 2, "(batch*steps, features)") ||
		!m.positive(layer(name), r.Units, r.Steps, r.Width) {
		return w, false
	}
	w[0] = m.variable(name+".input", Glorot(), []int{x.Shape()[1], gates * r.Units})
	w[1] = m.variable(name+".state", Glorot(), []int{r.Width, gates * r.Units})
	w[2] = m.variable(name+".bias", Zeros(), []int{gates * r.Units})
	return w, m.err == nil
}

// sequence adds a recurrent layer to the graph by calling over. If over fails,
// sequence records the error under the layer's name.
func (m *collected) sequence(name string, steps int, over func(steps int) (Sequence, error)) Sequence {
	if m.err != nil {
		return Sequence{}
	}
	s, err := over(steps)
	if err != nil {
		m.keep(fmt.Errorf("%s: %w", layer(name), err))
	}
	return s
}

// Attention returns, for each query, a weighted mean of the rows of memory,
// see [ops.Attention].
func (b *Builder) Attention(query, memory, mask *Node) *Node {
	return b.m.apply("Attention", func() (*Node, error) { return Attention(query, memory, mask) })
}
