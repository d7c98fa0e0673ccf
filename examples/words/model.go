package main

import (
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
	table := &trainer.Embedding{Name: "words", Rows: c.vocabulary, Width: c.width, Dtype: c.dtype,
		First: trainer.UniformRows(c.seed, -0.1, 0.1)}
	words, err := table.Lookup(g, "word", batch*c.length)
	if err != nil {
		return trainer.Model{}, err
	}
	sentences, err := gorgonia.Reshape(words, tensor.Shape{batch, c.length, c.width})
	if err != nil {
		return trainer.Model{}, err
	}
	mean, err := gorgonia.Mean(sentences, 1)
	if err != nil {
		return trainer.Model{}, err
	}
	w := gorgonia.NewMatrix(g, c.dtype, gorgonia.WithName("w"), gorgonia.WithShape(c.width, c.subjects),
		gorgonia.WithInit(trainer.GlorotUniform(c.seed, "w")))
	b := gorgonia.NewVector(g, c.dtype, gorgonia.WithName("b"), gorgonia.WithShape(c.subjects),
		gorgonia.WithInit(trainer.Zeros()))
	logits, err := nn.Linear(mean, w, b)
	if err != nil {
		return trainer.Model{}, err
	}
	subject := gorgonia.NewVector(g, c.dtype, gorgonia.WithName("subject"), gorgonia.WithShape(batch))
	loss, err := nn.CrossEntropy(logits, subject)
	if err != nil {
		return trainer.Model{}, err
	}
	accuracy, err := nn.Accuracy(logits, subject)
	return trainer.Model{
		Inputs: gorgonia.Nodes{subject}, Variables: gorgonia.Nodes{w, b}, Embeddings: []*trainer.Embedding{table},
		Loss: loss, Metrics: map[string]*gorgonia.Node{"accuracy": accuracy},
	}, err
}
