package ops

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/nn/matrix"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Attention returns, for each query, a weighted mean of the rows of memory.
// The weights are the softmax of the dot products of the query with the rows,
// divided by the square root of their width (Vaswani et al. 2017, "Attention
// is all you need", with keys equal to values).
//
// query has shape (batch*asked, width), and memory has shape (batch*kept,
// width); each holds one sequence after the other. mask has shape (batch,
// kept): 1 for rows that count, 0 for rows that only pad a sequence. The
// result has shape (batch*asked, width). If a sequence has no row that counts,
// running the graph fails.
func Attention(query, memory, mask *gorgonia.Node) (*gorgonia.Node, error) {
	const what = "attention"
	dtype, err := floats(what, query, memory, mask)
	if err != nil {
		return nil, err
	}
	q, m, k := query.Shape(), memory.Shape(), mask.Shape()
	if len(q) != 2 || len(m) != 2 || len(k) != 2 || q[1] != m[1] || m[0] != k[0]*k[1] || q[0]%k[0] != 0 {
		return nil, fmt.Errorf("%s: the query is %s, the memory %s and the mask %s: want (batch*asked, width), (batch*kept, width) and (batch, kept)",
			what, told(query), told(memory), told(mask))
	}
	a := attention{dtype: dtype, batch: k[0], asked: q[0] / k[0], kept: k[1], width: q[1], scratch: make([]float64, k[1])}
	weights := newOp("weights of attention", dtype, tensor.Shape{q[0], a.kept},
		chooseValues(dtype, attentionWeights[float32], attentionWeights[float64], a)).with(nil, 3)
	o := newOp(what, dtype, q, choose(dtype, attend[float32], attend[float64], a)).with(a.gradients, 1)
	b := &adder{}
	y := b.apply(o, query, memory, b.apply(weights, query, memory, mask))
	return y, b.err
}

// attention holds the sizes of an attention operation, which are also the
// parameters of its kernels.
type attention struct {
	dtype                     tensor.Dtype
	batch, asked, kept, width int       // number of sequences, queries per sequence, memory rows per sequence, and elements per row
	scratch                   []float64 // scratch memory for the weights of one query
}

// of returns the rows of x that belong to sequence i, as a matrix of the given
// size.
func of[T float](x []T, i, rows, columns int) matrix.Matrix[T] {
	return matrix.Whole(x[i*rows*columns:][:rows*columns], columns)
}

func (a attention) scale() float64 { return 1 / math.Sqrt(float64(a.width)) }

func attentionWeights[T float](a attention, out gorgonia.Value, in []gorgonia.Value) error {
	to, query, memory, mask := data[T](out), data[T](in[0]), data[T](in[1]), data[T](in[2])
	for i := range a.batch {
		weights, keep := of(to, i, a.asked, a.kept), mask[i*a.kept:][:a.kept]
		matrix.Mul(a.asked, a.kept, a.width, of(query, i, a.asked, a.width), of(memory, i, a.kept, a.width).T(), 0, weights)
		for r := range a.asked {
			w := weights.Row(r, a.kept)
			for j, k := range keep {
				if w[j] *= T(a.scale()); k == 0 {
					w[j] = T(math.Inf(-1))
				}
			}
			largest, sum := exponentials(a.scratch, w)
			if math.IsInf(largest, -1) {
				return fmt.Errorf("sequence %d: no row of the memory counts", i)
			}
			for j, e := range a.scratch {
				w[j] = T(e / sum)
			}
		}
	}
	return nil
}

// attend computes weighted sums of the rows of memory. The last two of its
// inputs are the memory and the weights.
func attend[T float](a attention, out []T, in [][]T) {
	memory, weights := in[len(in)-2], in[len(in)-1]
	for i := range a.batch {
		matrix.Mul(a.asked, a.width, a.kept, of(weights, i, a.asked, a.kept), of(memory, i, a.kept, a.width), 0, of(out, i, a.asked, a.width))
	}
}

// gradients adds the gradients of query and memory to the graph. The third
// input (weights) gets none: the weights are computed from query and memory,
// and the gradients of these two account for them.
func (a attention) gradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	query, memory, weights := in[0], in[1], in[2]
	b := &adder{what: "attention", dtype: a.dtype}
	d := b.add("scores", choose(a.dtype, attentionScores[float32], attentionScores[float64], a), weights.Shape(), memory, weights, dy)
	return gorgonia.Nodes{
		b.add("query", choose(a.dtype, attend[float32], attend[float64], a), query.Shape(), memory, d),
		b.add("memory", choose(a.dtype, attentionMemory[float32], attentionMemory[float64], a), memory.Shape(), query, weights, d, dy),
		nil,
	}, b.err
}

// attentionScores computes the gradient of the dot products of queries with
// memory rows.
func attentionScores[T float](a attention, out []T, in [][]T) {
	memory, weights, dy := in[0], in[1], in[2]
	for i := range a.batch {
		d, w := of(out, i, a.asked, a.kept), of(weights, i, a.asked, a.kept)
		matrix.Mul(a.asked, a.kept, a.width, of(dy, i, a.asked, a.width), of(memory, i, a.kept, a.width).T(), 0, d)
		for r := range a.asked {
			d, w := d.Row(r, a.kept), w.Row(r, a.kept)
			sum := 0.0
			for j, v := range d {
				sum += float64(float64(v) * float64(w[j]))
			}
			for j, v := range d {
				d[j] = T(float64(w[j]) * (float64(v) - sum) * a.scale())
			}
		}
	}
}

func attentionMemory[T float](a attention, out []T, in [][]T) {
	query, weights, d, dy := in[0], in[1], in[2], in[3]
	for i := range a.batch {
		to := of(out, i, a.kept, a.width)
		matrix.Mul(a.kept, a.width, a.asked, of(weights, i, a.asked, a.kept).T(), of(dy, i, a.asked, a.width), 0, to)
		matrix.Mul(a.kept, a.width, a.asked, of(d, i, a.asked, a.kept).T(), of(query, i, a.asked, a.width), 1, to)
	}
}
