package main

import (
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// network is an encoder and a decoder with attention (Luong et al. 2015,
// "Effective approaches to attention-based neural machine translation", its
// global attention).
type network struct {
	seed          uint64
	words, length int // of the language, and of the longest sentence
	width, hidden int
	dtype         tensor.Dtype // float32 or float64
}

// The numbers of what is not a word come before those of the words: what fills
// a sentence up and ends a translation, and what a translation begins with.
const end, begin, special = 0, 1, 2

// build is the model as plx wants it. Sentence after sentence, each filled up
// to length words, it is fed "source", the numbers of the words; "before", the
// translation's words but for the last, after a begin; "target", those words;
// and "mask", (batch, length), 1 where the source has a word. The fetch
// "logits" is (batch*length, classes). The metric "accuracy" is the part of
// all words, ends included, that are told right from the right words before
// them.
func (n network) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := &builder{network: n, graph: g, batch: batch}
	mask := b.input("mask", batch, n.length)
	target := b.input("target", batch*n.length)
	read := b.lstm("encoder", b.lookup("source"))
	written := b.lstm("decoder", b.lookup("before"), read.Last, read.Cell)
	seen := b.is(nn.Attention(written.Out, read.Out, mask))
	both := b.is(nn.Concat(1, seen, written.Out))
	joint := b.is(nn.Tanh(b.linear("joint", both, 2*n.hidden, n.hidden)))
	logits := b.linear("logits", joint, n.hidden, special+n.words)
	b.model.Loss = b.is(nn.CrossEntropy(logits, target))
	b.model.Metrics = map[string]*gorgonia.Node{"accuracy": b.is(nn.Accuracy(logits, target))}
	b.model.Fetches = map[string]*gorgonia.Node{"logits": logits}
	return b.model, b.err
}

// builder adds to a graph and keeps the first error.
type builder struct {
	network
	graph *gorgonia.ExprGraph
	batch int
	model trainer.Model
	err   error
}

func (b *builder) is(n *gorgonia.Node, err error) *gorgonia.Node {
	if b.err == nil {
		b.err = err
	}
	return n
}

func (b *builder) input(name string, shape ...int) *gorgonia.Node {
	n := gorgonia.NewTensor(b.graph, b.dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	b.model.Inputs = append(b.model.Inputs, n)
	return n
}

// lookup finds the words of a batch in a table of their own.
func (b *builder) lookup(name string) *gorgonia.Node {
	e := &trainer.Embedding{Name: name + " words", Rows: special + b.words, Width: b.width, Dtype: b.dtype,
		First: trainer.UniformRows(b.seed, -0.5, 0.5)}
	b.model.Embeddings = append(b.model.Embeddings, e)
	return b.is(e.Lookup(b.graph, name, b.batch*b.length))
}

// lstm is a layer that begins with a state and a cell, or with zeros.
func (b *builder) lstm(name string, x *gorgonia.Node, first ...*gorgonia.Node) nn.Sequence {
	layer := nn.LSTM{X: x, Input: b.weights(name+".input", b.width, 4*b.hidden), State: b.weights(name+".state", b.hidden, 4*b.hidden),
		Bias: b.variable(name+".bias", trainer.Zeros(), 4*b.hidden), Forget: 1}
	if len(first) == 2 {
		layer.First, layer.FirstCell = first[0], first[1]
	}
	s, err := layer.Over(b.length)
	b.is(nil, err)
	return s
}

func (b *builder) linear(name string, x *gorgonia.Node, in, out int) *gorgonia.Node {
	return b.is(nn.Linear(x, b.weights(name+".w", in, out), b.variable(name+".b", trainer.Zeros(), out)))
}

func (b *builder) weights(name string, in, out int) *gorgonia.Node {
	return b.variable(name, trainer.GlorotUniform(b.seed, name), in, out)
}

func (b *builder) variable(name string, first gorgonia.InitWFn, shape ...int) *gorgonia.Node {
	n := gorgonia.NewTensor(b.graph, b.dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithInit(first))
	b.model.Variables = append(b.model.Variables, n)
	return n
}
