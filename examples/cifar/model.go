package main

import (
	"fmt"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// network is a small convolutional network: convolution, batch norm, pool,
// convolution, pool, a hidden layer with dropout, and the mean cross-entropy
// of the softmax of ten classes.
type network struct {
	seed    uint64
	side    int     // of an image, in pixels; a multiple of 4
	filters [2]int  // of the two convolutions
	hidden  int     // width of the hidden layer
	dropout float64 // part of the hidden layer that is dropped in training
	dtype   tensor.Dtype
}

// The sizes of CIFAR-10, and of the batch norm's running averages the part
// that a step keeps.
const (
	channels = 3
	classes  = 10
	momentum = 0.9
)

// newNetwork is the network that the example trains.
func newNetwork(seed uint64, dropout float64) network {
	return network{seed: seed, side: 32, filters: [2]int{16, 32}, hidden: 128, dropout: dropout, dtype: tensor.Float32}
}

// build is the model as plx wants it. It is fed "x", (batch, 3, 32, 32), and
// "y", the classes one-hot, (batch, 10). The metric "accuracy" is the part of
// the batch that is told right.
func (n network) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := &builder{network: n, graph: g}
	x := gorgonia.NewTensor(g, n.dtype, 4, gorgonia.WithShape(batch, channels, n.side, n.side), gorgonia.WithName("x"))
	y := gorgonia.NewMatrix(g, n.dtype, gorgonia.WithShape(batch, classes), gorgonia.WithName("y"))
	h := b.convolution("conv1", x, channels, n.filters[0])
	h = b.norm("norm1", h, n.filters[0])
	h = b.pool(b.apply("relu", nn.Relu, h))
	h = b.convolution("conv2", h, n.filters[0], n.filters[1])
	h = b.bias("conv2", h, n.filters[1])
	h = b.pool(b.apply("relu", nn.Relu, h))
	h = b.apply("flatten", nn.Flatten, h)
	h = b.linear("linear1", h, n.filters[1]*(n.side/4)*(n.side/4), n.hidden, trainer.KaimingUniform(n.seed, "linear1.w"))
	h = b.apply("relu", nn.Relu, h)
	h = b.apply("dropout", func(x *gorgonia.Node) (*gorgonia.Node, error) { return nn.Dropout(x, n.dropout, "dropout1") }, h)
	// From zeros, all classes begin as likely. Large first logits would push
	// the hidden layer's rectifiers below zero, for good, in a few steps.
	logits := b.linear("linear2", h, n.hidden, classes, trainer.Zeros())
	loss := b.apply("loss", func(x *gorgonia.Node) (*gorgonia.Node, error) { return nn.CrossEntropy(x, y) }, logits)
	accuracy := b.apply("accuracy", func(x *gorgonia.Node) (*gorgonia.Node, error) { return nn.Accuracy(x, y) }, logits)
	return trainer.Model{
		Inputs:    gorgonia.Nodes{x, y},
		Variables: b.variables,
		States:    b.states,
		Loss:      loss,
		Metrics:   map[string]*gorgonia.Node{"accuracy": accuracy},
	}, b.err
}

// builder adds layer after layer to a graph. After the first error it adds
// nothing more.
type builder struct {
	network
	graph     *gorgonia.ExprGraph
	variables gorgonia.Nodes
	states    []trainer.State
	err       error
}

func (b *builder) apply(what string, f func(x *gorgonia.Node) (*gorgonia.Node, error), x *gorgonia.Node) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	y, err := f(x)
	if err != nil {
		b.err = fmt.Errorf("%s: %w", what, err)
	}
	return y
}

// convolution is 3 x 3 and keeps the image's size. It has no bias.
func (b *builder) convolution(name string, x *gorgonia.Node, in, filters int) *gorgonia.Node {
	w := b.variable(name+".w", trainer.KaimingUniform(b.seed, name+".w"), filters, in, 3, 3)
	return b.apply(name, func(x *gorgonia.Node) (*gorgonia.Node, error) { return nn.Conv2D(x, w, 1, 1) }, x)
}

func (b *builder) bias(name string, x *gorgonia.Node, width int) *gorgonia.Node {
	bias := b.variable(name+".b", trainer.Zeros(), width)
	return b.apply(name, func(x *gorgonia.Node) (*gorgonia.Node, error) { return nn.AddBias(x, bias) }, x)
}

func (b *builder) norm(name string, x *gorgonia.Node, width int) *gorgonia.Node {
	scale, bias := b.variable(name+".scale", gorgonia.Ones(), width), b.variable(name+".bias", trainer.Zeros(), width)
	mean, variance := b.leaf(name+".mean", trainer.Zeros(), width), b.leaf(name+".variance", gorgonia.Ones(), width)
	return b.apply(name, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		n, err := nn.BatchNorm(x, scale, bias, mean, variance, momentum, 1e-5, name)
		b.states = append(b.states,
			trainer.State{Variable: mean, Batch: n.BatchMean, Momentum: n.Momentum},
			trainer.State{Variable: variance, Batch: n.BatchVariance, Momentum: n.Momentum})
		return n.Out, err
	}, x)
}

// pool halves the sides of an image.
func (b *builder) pool(x *gorgonia.Node) *gorgonia.Node {
	return b.apply("pool", func(x *gorgonia.Node) (*gorgonia.Node, error) { return nn.MaxPool2D(x, 2, 2, 0) }, x)
}

func (b *builder) linear(name string, x *gorgonia.Node, in, out int, first gorgonia.InitWFn) *gorgonia.Node {
	w := b.variable(name+".w", first, in, out)
	bias := b.variable(name+".b", trainer.Zeros(), out)
	return b.apply(name, func(x *gorgonia.Node) (*gorgonia.Node, error) { return nn.Linear(x, w, bias) }, x)
}

func (b *builder) variable(name string, first gorgonia.InitWFn, shape ...int) *gorgonia.Node {
	n := b.leaf(name, first, shape...)
	b.variables = append(b.variables, n)
	return n
}

func (b *builder) leaf(name string, first gorgonia.InitWFn, shape ...int) *gorgonia.Node {
	return gorgonia.NewTensor(b.graph, b.dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithInit(first))
}
