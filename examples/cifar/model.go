package main

import (
	"github.com/plx-run/plx/examples/internal/builder"
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
	side    int     // pixels of an image's side; a multiple of 4
	filters [2]int  // filters of the two convolutions
	hidden  int     // width of the hidden layer
	dropout float64 // fraction of the hidden layer that is dropped in training
	dtype   tensor.Dtype
}

// The sizes of CIFAR-10, and the momentum of the batch norm's running averages.
const (
	channels = 3
	classes  = 10
	momentum = 0.9
)

// newNetwork returns the network that the example trains.
func newNetwork(seed uint64, dropout float64) network {
	return network{seed: seed, side: 32, filters: [2]int{16, 32}, hidden: 128, dropout: dropout, dtype: tensor.Float32}
}

// build makes the model for plx. Its inputs are "x", (batch, 3, 32, 32), and
// "y", the classes one-hot, (batch, 10). The metric "accuracy" is the fraction
// of the batch that is classified correctly.
func (n network) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := builder.New(g, n.seed, n.dtype)
	x, y := b.Input("x", batch, channels, n.side, n.side), b.Input("y", batch, classes)
	h := n.convolution(b, "conv1", x, channels, n.filters[0])
	h = norm(b, "norm1", h, n.filters[0])
	h = pool(b, b.Node(nn.Relu(h)))
	h = n.convolution(b, "conv2", h, n.filters[0], n.filters[1])
	h = b.Node(nn.AddBias(h, b.Variable("conv2.b", trainer.Zeros(), n.filters[1])))
	h = b.Node(nn.Flatten(pool(b, b.Node(nn.Relu(h)))))
	h = linear(b, "linear1", h, n.filters[1]*(n.side/4)*(n.side/4), n.hidden, trainer.KaimingUniform(n.seed, "linear1.w"))
	h = b.Node(nn.Dropout(b.Node(nn.Relu(h)), n.dropout, "dropout1"))
	// From zeros, all classes are equally likely at first. Large first logits
	// would push the hidden layer's rectifiers below zero in a few steps, and
	// they would stay there.
	logits := linear(b, "linear2", h, n.hidden, classes, trainer.Zeros())
	return b.Done(trainer.Model{
		Loss:    b.Node(nn.CrossEntropy(logits, y)),
		Metrics: map[string]*gorgonia.Node{"accuracy": b.Node(nn.Accuracy(logits, y))},
	})
}

// convolution is 3 x 3 and keeps the image's size. It has no bias.
func (n network) convolution(b *builder.Builder, name string, x *gorgonia.Node, in, filters int) *gorgonia.Node {
	return b.Node(nn.Conv2D(x, b.Variable(name+".w", trainer.KaimingUniform(n.seed, name+".w"), filters, in, 3, 3), 1, 1))
}

func norm(b *builder.Builder, name string, x *gorgonia.Node, width int) *gorgonia.Node {
	scale, bias := b.Variable(name+".scale", gorgonia.Ones(), width), b.Variable(name+".bias", trainer.Zeros(), width)
	mean, variance := b.Leaf(name+".mean", trainer.Zeros(), width), b.Leaf(name+".variance", gorgonia.Ones(), width)
	n, err := nn.BatchNorm(x, scale, bias, mean, variance, momentum, 1e-5, name)
	b.State(trainer.State{Variable: mean, Batch: n.BatchMean, Momentum: n.Momentum})
	b.State(trainer.State{Variable: variance, Batch: n.BatchVariance, Momentum: n.Momentum})
	return b.Node(n.Out, err)
}

// pool halves the sides of an image.
func pool(b *builder.Builder, x *gorgonia.Node) *gorgonia.Node {
	return b.Node(nn.MaxPool2D(x, 2, 2, 0))
}

func linear(b *builder.Builder, name string, x *gorgonia.Node, in, out int, first gorgonia.InitWFn) *gorgonia.Node {
	return b.Node(nn.Linear(x, b.Variable(name+".w", first, in, out), b.Variable(name+".b", trainer.Zeros(), out)))
}
