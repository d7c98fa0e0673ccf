package main

import (
	"github.com/plx-run/plx/examples/internal/builder"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// network is an LSTM over words' vectors and a sampled softmax over its outputs
// (Jozefowicz et al. 2016, "Exploring the limits of language modeling", at a
// small size).
type network struct {
	seed                  uint64
	vocabulary, drawn     int // words, and number of sampled words
	width, hidden, length int
	dense                 bool         // tables are ordinary variables
	dtype                 tensor.Dtype // float32 or float64
}

// seeded returns the network with first values that depend on a seed.
func (n network) seeded(seed uint64) network {
	n.seed = seed
	return n
}

// of returns the network for another number of words.
func (n network) of(vocabulary int) network {
	n.vocabulary = vocabulary
	return n
}

// build makes the model for plx. Its inputs are, row by row: "word" and the
// next words, "target" and again "label"; the sampled words "sample" and again
// "class"; the logarithms of both's expected counts; and the "state" and "cell"
// at the beginning of the rows. The fetches of the same names are state and
// cell at their end. The metric "entropy" estimates the cross entropy over all
// words.
func (n network) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := builder.New(g, n.seed, n.dtype)
	count := batch * n.length
	layer := nn.LSTM{X: n.table(b, "words", n.width)("word", count), Forget: 1,
		First: b.Input("state", batch, n.width), FirstCell: b.Input("cell", batch, n.hidden),
		Input: b.Weights("lstm.input", n.width, 4*n.hidden), State: b.Weights("lstm.state", n.width, 4*n.hidden),
		Bias: b.Variable("lstm.bias", trainer.Zeros(), 4*n.hidden)}
	if n.hidden != n.width {
		layer.Projection = b.Weights("lstm.projection", n.hidden, n.width)
	}
	classes := n.table(b, "classes", n.width+1)
	candidates := nn.Candidates{
		LabelRows: classes("target", count), Label: b.InputOf(tensor.Int64, "label", count), LabelLog: b.Input("label log", count),
		SampleRows: classes("sample", n.drawn), Sample: b.InputOf(tensor.Int64, "class", n.drawn), SampleLog: b.Input("class log", n.drawn),
	}
	read, err := layer.Over(n.length)
	b.Keep(err)
	loss, entropy, err := nn.SampledCrossEntropy(read.Out, candidates)
	b.Keep(err)
	return b.Done(trainer.Model{
		Loss:    loss,
		Metrics: map[string]*gorgonia.Node{"entropy": entropy},
		Fetches: map[string]*gorgonia.Node{"state": read.Last, "cell": read.Cell},
	})
}

// table adds a table. It returns a function that looks up a number of rows.
func (n network) table(b *builder.Builder, name string, width int) func(lookup string, rows int) *gorgonia.Node {
	const bound = 0.05
	if n.dense {
		all := b.Variable(name, trainer.Uniform(n.seed, name, -bound, bound), n.vocabulary, width)
		return func(lookup string, rows int) *gorgonia.Node {
			return b.Node(nn.Rows(all, b.InputOf(tensor.Int64, lookup, rows)))
		}
	}
	e := &trainer.Embedding{Name: name, Rows: n.vocabulary, Width: width, Dtype: n.dtype,
		First: trainer.UniformRows(n.seed, -bound, bound), Partitioner: trainer.Partitioner(1)}
	return func(lookup string, rows int) *gorgonia.Node { return b.Lookup(e, lookup, rows) }
}
