package nn

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Attention gives for each query the mean of a memory's rows, each weighed by
// the softmax of its product with the query over the root of their width
// (Vaswani et al. 2017, "Attention is all you need", with keys and values one).
//
// query is (batch*asked, width) and memory (batch*kept, width), one sequence
// after the other; mask is (batch, kept): 1 for the rows that count and 0 for
// those that only fill a sequence up. A sequence without a row that counts is
// an error of the run. The result is (batch*asked, width).
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
	a := attention{dtype: dtype, batch: k[0], asked: q[0] / k[0], kept: k[1], width: q[1]}
	weights := &operation{
		what:  "weights of attention",
		out:   operand{dtype: dtype, shape: tensor.Shape{q[0], a.kept}},
		run:   choose(dtype, attentionWeights[float32], attentionWeights[float64], a),
		fixed: 3,
	}
	w, err := weights.apply(query, memory, mask)
	if err != nil {
		return nil, err
	}
	o := &operation{
		what:  what,
		out:   operand{dtype: dtype, shape: q},
		run:   choose(dtype, attend[float32], attend[float64], a),
		diff:  a.gradients,
		fixed: 1,
	}
	return o.apply(query, memory, w)
}

// attention is the sizes of an attention.
type attention struct {
	dtype                     tensor.Dtype
	batch, asked, kept, width int
}

// of are the rows of a value that belong to one sequence.
func of[T float](x []T, i, rows, columns int) block[T] {
	return whole(x[i*rows*columns:][:rows*columns], columns)
}

func (a attention) scale() float64 { return 1 / math.Sqrt(float64(a.width)) }

func attentionWeights[T float](a attention) kernel {
	scratch := make([]float64, a.kept)
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		to, query, memory, mask := data[T](out), data[T](in[0]), data[T](in[1]), data[T](in[2])
		for i := range a.batch {
			weights, keep := of(to, i, a.asked, a.kept), mask[i*a.kept:][:a.kept]
			mul(a.asked, a.kept, a.width, of(query, i, a.asked, a.width), of(memory, i, a.kept, a.width).t(), 0, weights)
			for r := range a.asked {
				w := weights.row(r, a.kept)
				for j, k := range keep {
					if w[j] *= T(a.scale()); k == 0 {
						w[j] = T(math.Inf(-1))
					}
				}
				largest, sum := exponentials(scratch, w)
				if math.IsInf(largest, -1) {
					return fmt.Errorf("sequence %d: no row of the memory counts", i)
				}
				for j, e := range scratch {
					w[j] = T(e / sum)
				}
			}
		}
		return nil
	}
}

// attend has the query, the memory and the weights.
func attend[T float](a attention) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		memory, weights := data[T](in[1]), data[T](in[2])
		for i := range a.batch {
			mul(a.asked, a.width, a.kept, of(weights, i, a.asked, a.kept), of(memory, i, a.kept, a.width), 0, of(data[T](out), i, a.asked, a.width))
		}
		return nil
	}
}

// gradients are those of the query and the memory.
func (a attention) gradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	query, memory, weights := in[0], in[1], in[2]
	b := &adder{what: "attention", dtype: a.dtype}
	d := b.add("scores", choose(a.dtype, attentionScores[float32], attentionScores[float64], a), weights.Shape(), memory, weights, dy)
	return gorgonia.Nodes{
		b.add("query", choose(a.dtype, attentionQuery[float32], attentionQuery[float64], a), query.Shape(), memory, d),
		b.add("memory", choose(a.dtype, attentionMemory[float32], attentionMemory[float64], a), memory.Shape(), query, weights, d, dy),
		nil,
	}, b.err
}

// attentionScores is the gradient of the products of queries and memory.
func attentionScores[T float](a attention) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		memory, weights, dy := data[T](in[0]), data[T](in[1]), data[T](in[2])
		for i := range a.batch {
			d, w := of(data[T](out), i, a.asked, a.kept), of(weights, i, a.asked, a.kept)
			mul(a.asked, a.kept, a.width, of(dy, i, a.asked, a.width), of(memory, i, a.kept, a.width).t(), 0, d)
			for r := range a.asked {
				d, w := d.row(r, a.kept), w.row(r, a.kept)
				sum := 0.0
				for j, v := range d {
					sum += float64(float64(v) * float64(w[j]))
				}
				for j, v := range d {
					d[j] = T(float64(w[j]) * (float64(v) - sum) * a.scale())
				}
			}
		}
		return nil
	}
}

func attentionQuery[T float](a attention) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		memory, d := data[T](in[0]), data[T](in[1])
		for i := range a.batch {
			mul(a.asked, a.width, a.kept, of(d, i, a.asked, a.kept), of(memory, i, a.kept, a.width), 0, of(data[T](out), i, a.asked, a.width))
		}
		return nil
	}
}

func attentionMemory[T float](a attention) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		query, weights, d, dy := data[T](in[0]), data[T](in[1]), data[T](in[2]), data[T](in[3])
		for i := range a.batch {
			to := of(data[T](out), i, a.kept, a.width)
			mul(a.kept, a.width, a.asked, of(weights, i, a.asked, a.kept).t(), of(dy, i, a.asked, a.width), 0, to)
			mul(a.kept, a.width, a.asked, of(d, i, a.asked, a.kept).t(), of(query, i, a.asked, a.width), 1, to)
		}
		return nil
	}
}
