package main

import (
	"fmt"

	"github.com/plx-run/plx/examples/internal/builder"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// build makes the model for plx: a stack of linear layers without biases, tanh
// between them, and the cross-entropy of the last layer's softmax, averaged over
// the batch. Its inputs are the features "x", (batch, in), and the labels "y",
// one-hot, (batch, classes).
func (s *settings) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := builder.New(g, s.seed, tensor.Float32)
	x, y := b.Input("x", batch, s.dimIn), b.Input("y", batch, s.classes)
	out, widths := x, s.widths()
	for i := range s.layers {
		name := fmt.Sprintf("w%d", i)
		w := b.Variable(name, trainer.KaimingUniform(s.seed, name), widths[i], widths[i+1])
		if i > 0 {
			out = b.Node(gorgonia.Tanh(out))
		}
		if i > 0 && s.dropout > 0 {
			out = b.Node(nn.Dropout(out, s.dropout, fmt.Sprintf("dropout%d", i)))
		}
		out = b.Node(gorgonia.Mul(out, w))
	}
	return b.Done(trainer.Model{Loss: b.Node(nn.CrossEntropy(out, y))})
}

// widths returns the sizes between the layers, beginning with the input's.
func (s *settings) widths() []int {
	w := []int{s.dimIn}
	for range s.layers - 1 {
		w = append(w, s.dimHidden)
	}
	return append(w, s.classes)
}
