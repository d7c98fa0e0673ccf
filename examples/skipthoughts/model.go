package main

import (
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// network is an encoder and two decoders of gated recurrent units (Kiros et al.
// 2015, "Skip-thought vectors"). Unlike there, the decoders are told the
// sentence's vector at their beginning only.
type network struct {
	seed          uint64
	words, length int // of the language, and of a sentence
	width, hidden int
	dtype         tensor.Dtype // float32 or float64
}

// build is the model as plx wants it. It is fed, sentence after sentence, the
// numbers of words: "sentence"; "previous words" and "next words", those of its
// neighbours but for the last, after the number that begins a sentence; and
// "previous" and "next", those words. The fetch "logits" is of the words of all
// previous sentences and then of all next ones, (2*batch*length, words). The
// metric "accuracy" is the part of all words that are told right from the
// right words before them.
func (n network) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := &builder{network: n, graph: g, count: batch * n.length}
	b.table = &trainer.Embedding{Name: "words", Rows: n.words + 1, Width: n.width, Dtype: n.dtype, First: trainer.UniformRows(n.seed, -0.5, 0.5)}
	b.model.Embeddings = []*trainer.Embedding{b.table}
	thought := b.gru("encoder", "sentence", nil).Last
	previous := b.gru("previous decoder", "previous words", thought).Out
	next := b.gru("next decoder", "next words", thought).Out
	logits := b.is(nn.Concat(0, b.linear("previous logits", previous, n.words), b.linear("next logits", next, n.words)))
	target := b.is(nn.Concat(0, b.input("previous"), b.input("next")))
	b.model.Loss = b.is(nn.CrossEntropy(logits, target))
	b.model.Metrics = map[string]*gorgonia.Node{"accuracy": b.is(nn.Accuracy(logits, target))}
	b.model.Fetches = map[string]*gorgonia.Node{"logits": logits}
	return b.model, b.err
}

// builder adds to a graph and keeps the first error.
type builder struct {
	network
	graph *gorgonia.ExprGraph
	count int // words of a batch
	table *trainer.Embedding
	model trainer.Model
	err   error
}

func (b *builder) is(n *gorgonia.Node, err error) *gorgonia.Node {
	if b.err == nil {
		b.err = err
	}
	return n
}

func (b *builder) input(name string) *gorgonia.Node {
	n := gorgonia.NewVector(b.graph, b.dtype, gorgonia.WithShape(b.count), gorgonia.WithName(name))
	b.model.Inputs = append(b.model.Inputs, n)
	return n
}

// gru is a layer over words that begins with a thought, or with zeros.
func (b *builder) gru(name, words string, thought *gorgonia.Node) nn.Sequence {
	s, err := nn.GRU{X: b.is(b.table.Lookup(b.graph, words, b.count)), First: thought,
		Input: b.weights(name+".input", b.width, 3*b.hidden), State: b.weights(name+".state", b.hidden, 3*b.hidden),
		Bias: b.variable(name+".bias", trainer.Zeros(), 3*b.hidden)}.Over(b.length)
	b.is(nil, err)
	return s
}

func (b *builder) linear(name string, x *gorgonia.Node, out int) *gorgonia.Node {
	return b.is(nn.Linear(x, b.weights(name+".w", b.hidden, out), b.variable(name+".b", trainer.Zeros(), out)))
}

func (b *builder) weights(name string, in, out int) *gorgonia.Node {
	return b.variable(name, trainer.GlorotUniform(b.seed, name), in, out)
}

func (b *builder) variable(name string, first gorgonia.InitWFn, shape ...int) *gorgonia.Node {
	n := gorgonia.NewTensor(b.graph, b.dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithInit(first))
	b.model.Variables = append(b.model.Variables, n)
	return n
}
