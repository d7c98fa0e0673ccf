package main

import (
	"fmt"

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
	x, y := p.input(g, "x", batch, p.in), p.input(g, "y", batch, classes)
	w0, b0 := p.layer(g, "0", p.in, p.hidden)
	w1, b1 := p.layer(g, "1", p.hidden, classes)
	hidden, err := nn.Linear(x, w0, b0)
	if err != nil {
		return trainer.Model{}, fmt.Errorf("hidden layer: %w", err)
	}
	if hidden, err = nn.Relu(hidden); err != nil {
		return trainer.Model{}, fmt.Errorf("hidden layer: %w", err)
	}
	logits, err := nn.Linear(hidden, w1, b1)
	if err != nil {
		return trainer.Model{}, fmt.Errorf("last layer: %w", err)
	}
	loss, err := nn.SumCrossEntropy(logits, y)
	if err != nil {
		return trainer.Model{}, fmt.Errorf("loss: %w", err)
	}
	accuracy, err := nn.Accuracy(logits, y)
	if err != nil {
		return trainer.Model{}, err
	}
	return trainer.Model{
		Inputs:    gorgonia.Nodes{x, y},
		Variables: gorgonia.Nodes{w0, b0, w1, b1},
		Loss:      loss,
		LossKind:  trainer.Sum,
		Metrics:   map[string]*gorgonia.Node{"accuracy": accuracy},
	}, nil
}

func (p perceptron) input(g *gorgonia.ExprGraph, name string, batch, width int) *gorgonia.Node {
	return gorgonia.NewMatrix(g, p.dtype, gorgonia.WithShape(batch, width), gorgonia.WithName(name))
}

// layer returns the weights and the biases of a linear layer.
func (p perceptron) layer(g *gorgonia.ExprGraph, number string, in, out int) (w, b *gorgonia.Node) {
	name := "w" + number
	w = gorgonia.NewMatrix(g, p.dtype, gorgonia.WithShape(in, out), gorgonia.WithName(name),
		gorgonia.WithInit(trainer.KaimingUniform(p.seed, name)))
	b = gorgonia.NewVector(g, p.dtype, gorgonia.WithShape(out), gorgonia.WithName("b"+number),
		gorgonia.WithInit(trainer.Zeros()))
	return w, b
}
