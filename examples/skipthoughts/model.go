package main

import (
	"github.com/plx-run/plx/examples/internal/builder"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// network is an encoder and two decoders of gated recurrent units (Kiros et al.
// 2015, "Skip-thought vectors"). Unlike in the paper, the decoders get the
// sentence's vector only at their beginning.
type network struct {
	seed          uint64
	words, length int // of the language, and of a sentence
	width, hidden int
	dtype         tensor.Dtype // float32 or float64
}

// seeded returns the network with first values that depend on a seed.
func (n network) seeded(seed uint64) network {
	n.seed = seed
	return n
}

// build makes the model for plx. Its inputs are the numbers of words, sentence
// after sentence: "sentence"; "previous words" and "next words", the number
// that begins a sentence and the neighbours' words but for the last; and
// "previous" and "next", the neighbours' words. The fetch "logits" is about the
// words of all previous sentences and then of all next ones, (2*batch*length,
// words). The metric "accuracy" is the fraction of all words that are predicted
// correctly from the right words before them.
func (n network) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := builder.New(g, n.seed, n.dtype)
	table := &trainer.Embedding{Name: "words", Rows: n.words + 1, Width: n.width, Dtype: n.dtype, First: trainer.UniformRows(n.seed, -0.5, 0.5)}
	count := batch * n.length
	gru := func(name, words string, first *gorgonia.Node) nn.Sequence {
		return n.gru(b, name, b.Lookup(table, words, count), first)
	}
	thought := gru("encoder", "sentence", nil).Last
	previous := gru("previous decoder", "previous words", thought).Out
	next := gru("next decoder", "next words", thought).Out
	logits := b.Node(nn.Concat(0, b.Linear("previous logits", previous, n.hidden, n.words), b.Linear("next logits", next, n.hidden, n.words)))
	target := b.Node(nn.Concat(0, b.Input("previous", count), b.Input("next", count)))
	return b.Done(trainer.Model{
		Loss:    b.Node(nn.CrossEntropy(logits, target)),
		Metrics: map[string]*gorgonia.Node{"accuracy": b.Node(nn.Accuracy(logits, target))},
		Fetches: map[string]*gorgonia.Node{"logits": logits},
	})
}

// gru is a layer over the vectors of words that begins with first, or with
// zeros.
func (n network) gru(b *builder.Builder, name string, x, first *gorgonia.Node) nn.Sequence {
	s, err := nn.GRU{X: x, First: first,
		Input: b.Weights(name+".input", n.width, 3*n.hidden), State: b.Weights(name+".state", n.hidden, 3*n.hidden),
		Bias: b.Variable(name+".bias", trainer.Zeros(), 3*n.hidden)}.Over(n.length)
	b.Keep(err)
	return s
}
