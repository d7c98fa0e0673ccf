package main

import (
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// network is an LSTM over words' vectors and a sampled softmax over what it
// gives (Jozefowicz et al. 2016, "Exploring the limits of language modeling",
// at a small size).
type network struct {
	seed                  uint64
	vocabulary, drawn     int // words, and how many of them are samples
	width, hidden, length int
	dense                 bool         // tables are ordinary variables
	dtype                 tensor.Dtype // float32 or float64
}

// build is the model as plx wants it. It is fed, row by row, "word" and the
// words that follow, "target" and again "label"; "sample" and again "class",
// the words that were drawn; the logarithms of both's expected counts; and the
// "state" and "cell" that the rows begin with. What they end with are the
// fetches of the same names. The metric "entropy" is a guess at the cross
// entropy over all words.
func (n network) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := &builder{network: n, graph: g}
	count := batch * n.length
	layer := nn.LSTM{X: b.table("words", n.width)("word", count), Forget: 1,
		First: b.input("state", n.dtype, batch, n.width), FirstCell: b.input("cell", n.dtype, batch, n.hidden),
		Input: b.variable("lstm.input", trainer.GlorotUniform(n.seed, "lstm.input"), n.width, 4*n.hidden),
		State: b.variable("lstm.state", trainer.GlorotUniform(n.seed, "lstm.state"), n.width, 4*n.hidden),
		Bias:  b.variable("lstm.bias", trainer.Zeros(), 4*n.hidden)}
	if n.hidden != n.width {
		layer.Projection = b.variable("lstm.projection", trainer.GlorotUniform(n.seed, "lstm.projection"), n.hidden, n.width)
	}
	classes := b.table("classes", n.width+1)
	candidates := nn.Candidates{
		LabelRows: classes("target", count), Label: b.input("label", tensor.Int64, count), LabelLog: b.input("label log", n.dtype, count),
		SampleRows: classes("sample", n.drawn), Sample: b.input("class", tensor.Int64, n.drawn), SampleLog: b.input("class log", n.dtype, n.drawn),
	}
	read, err := layer.Over(n.length)
	b.is(nil, err)
	loss, entropy, err := nn.SampledCrossEntropy(read.Out, candidates)
	b.model.Loss, b.model.Metrics = b.is(loss, err), map[string]*gorgonia.Node{"entropy": entropy}
	b.model.Fetches = map[string]*gorgonia.Node{"state": read.Last, "cell": read.Cell}
	return b.model, b.err
}

// builder adds to a graph and keeps the first error.
type builder struct {
	network
	graph *gorgonia.ExprGraph
	model trainer.Model
	err   error
}

func (b *builder) is(n *gorgonia.Node, err error) *gorgonia.Node {
	if b.err == nil {
		b.err = err
	}
	return n
}

func (b *builder) input(name string, dtype tensor.Dtype, shape ...int) *gorgonia.Node {
	n := gorgonia.NewTensor(b.graph, dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	b.model.Inputs = append(b.model.Inputs, n)
	return n
}

func (b *builder) variable(name string, first gorgonia.InitWFn, shape ...int) *gorgonia.Node {
	n := gorgonia.NewTensor(b.graph, b.dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithInit(first))
	b.model.Variables = append(b.model.Variables, n)
	return n
}

// table returns how to look up n rows of a new table.
func (b *builder) table(name string, width int) func(lookup string, n int) *gorgonia.Node {
	const bound = 0.05
	if b.dense {
		all := b.variable(name, trainer.Uniform(b.seed, name, -bound, bound), b.vocabulary, width)
		return func(lookup string, n int) *gorgonia.Node { return b.is(nn.Rows(all, b.input(lookup, tensor.Int64, n))) }
	}
	e := &trainer.Embedding{Name: name, Rows: b.vocabulary, Width: width, Dtype: b.dtype,
		First: trainer.UniformRows(b.seed, -bound, bound), Partitioner: trainer.Partitioner(1)}
	b.model.Embeddings = append(b.model.Embeddings, e)
	return func(lookup string, n int) *gorgonia.Node { return b.is(e.Lookup(b.graph, lookup, n)) }
}
