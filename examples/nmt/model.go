package main

import (
	"github.com/plx-run/plx/examples/internal/builder"
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

// The numbers below special are not words. end pads a sentence and ends a
// translation; begin begins a translation.
const end, begin, special = 0, 1, 2

// seeded returns the network with first values that depend on a seed.
func (n network) seeded(seed uint64) network {
	n.seed = seed
	return n
}

// build makes the model for plx. Its inputs are, sentence after sentence and
// each padded to length words: "source", the numbers of the words; "before", a
// begin and the translation's words but for the last; "target", the
// translation's words; and "mask", (batch, length), 1 at the source's words.
// The fetch "logits" has shape (batch*length, classes). The metric "accuracy"
// is the fraction of all words, ends included, that are predicted correctly
// from the right words before them.
func (n network) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := builder.New(g, n.seed, n.dtype)
	mask := b.Input("mask", batch, n.length)
	target := b.Input("target", batch*n.length)
	read := n.lstm(b, "encoder", n.lookup(b, "source", batch))
	written := n.lstm(b, "decoder", n.lookup(b, "before", batch), read.Last, read.Cell)
	seen := b.Node(nn.Attention(written.Out, read.Out, mask))
	both := b.Node(nn.Concat(1, seen, written.Out))
	joint := b.Node(nn.Tanh(b.Linear("joint", both, 2*n.hidden, n.hidden)))
	logits := b.Linear("logits", joint, n.hidden, special+n.words)
	return b.Done(trainer.Model{
		Loss:    b.Node(nn.CrossEntropy(logits, target)),
		Metrics: map[string]*gorgonia.Node{"accuracy": b.Node(nn.Accuracy(logits, target))},
		Fetches: map[string]*gorgonia.Node{"logits": logits},
	})
}

// lookup finds the words of a batch in a table of their own.
func (n network) lookup(b *builder.Builder, name string, batch int) *gorgonia.Node {
	e := &trainer.Embedding{Name: name + " words", Rows: special + n.words, Width: n.width, Dtype: n.dtype,
		First: trainer.UniformRows(n.seed, -0.5, 0.5)}
	return b.Lookup(e, name, batch*n.length)
}

// lstm is a layer that begins with a state and a cell, or with zeros.
func (n network) lstm(b *builder.Builder, name string, x *gorgonia.Node, first ...*gorgonia.Node) nn.Sequence {
	layer := nn.LSTM{X: x, Input: b.Weights(name+".input", n.width, 4*n.hidden), State: b.Weights(name+".state", n.hidden, 4*n.hidden),
		Bias: b.Variable(name+".bias", trainer.Zeros(), 4*n.hidden), Forget: 1}
	if len(first) == 2 {
		layer.First, layer.FirstCell = first[0], first[1]
	}
	s, err := layer.Over(n.length)
	b.Keep(err)
	return s
}
