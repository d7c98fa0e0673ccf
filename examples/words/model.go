package main

import (
	"github.com/plx-run/plx/examples/internal/builder"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// classifier predicts a sentence's subject from the mean of its words' vectors,
// by one linear layer and the mean cross-entropy of its softmax.
type classifier struct {
	language
	width int          // of a word's vector
	dtype tensor.Dtype // float32 or float64
}

// build makes the model for plx. Its inputs are "word", the indices of the
// sentences' words, one sentence after the other, and "subject", (batch), the
// numbers of the subjects. The metric "accuracy" is the fraction of the batch
// that is classified correctly.
func (c classifier) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := builder.New(g, c.seed, c.dtype)
	table := &trainer.Embedding{Name: "words", Rows: c.vocabulary, Width: c.width, Dtype: c.dtype,
		First: trainer.UniformRows(c.seed, -0.1, 0.1)}
	words := b.Lookup(table, "word", batch*c.length)
	sentences := b.Node(gorgonia.Reshape(words, tensor.Shape{batch, c.length, c.width}))
	mean := b.Node(gorgonia.Mean(sentences, 1))
	w := b.Weights("w", c.width, c.subjects)
	logits := b.Node(nn.Linear(mean, w, b.Variable("b", trainer.Zeros(), c.subjects)))
	subject := b.Input("subject", batch)
	return b.Done(trainer.Model{
		Loss:    b.Node(nn.CrossEntropy(logits, subject)),
		Metrics: map[string]*gorgonia.Node{"accuracy": b.Node(nn.Accuracy(logits, subject))},
	})
}
