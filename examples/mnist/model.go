package main

import (
	"github.com/plx-run/plx/examples/internal/builder"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The sizes of MNIST.
const (
	pixels  = 28 * 28
	classes = 10
)

// perceptron is a network with one hidden layer of rectifiers, and the
// cross-entropy of its softmax, summed over the batch.
type perceptron struct {
	seed   uint64
	in     int          // features of a sample
	hidden int          // width of the hidden layer
	dtype  tensor.Dtype // float32 or float64
}

// newPerceptron returns the network that the example trains: 784-100-10.
func newPerceptron(seed uint64) perceptron {
	return perceptron{seed: seed, in: pixels, hidden: 100, dtype: tensor.Float32}
}

// build makes the model for plx. Its inputs are "x", (batch, 784), and "y", the
// classes one-hot, (batch, 10). The metric "accuracy" is the fraction of the
// batch that is classified correctly.
func (p perceptron) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := builder.New(g, p.seed, p.dtype)
	x, y := b.Input("x", batch, p.in), b.Input("y", batch, classes)
	layer := func(x *gorgonia.Node, number string, in, out int) *gorgonia.Node {
		w := b.Variable("w"+number, trainer.KaimingUniform(p.seed, "w"+number), in, out)
		return b.Node(nn.Linear(x, w, b.Variable("b"+number, trainer.Zeros(), out)))
	}
	logits := layer(b.Node(nn.Relu(layer(x, "0", p.in, p.hidden))), "1", p.hidden, classes)
	return b.Done(trainer.Model{
		Loss:     b.Node(nn.SumCrossEntropy(logits, y)),
		LossKind: trainer.Sum,
		Metrics:  map[string]*gorgonia.Node{"accuracy": b.Node(nn.Accuracy(logits, y))},
	})
}
