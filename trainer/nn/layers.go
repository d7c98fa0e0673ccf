package nn

import (
	"fmt"

	"github.com/plx-run/plx/trainer"
	"gorgonia.org/gorgonia"
)

// Option changes the variables of a Dense or Conv.
type Option func(*layerSettings)

// layerSettings are the variables of a Dense or Conv.
type layerSettings struct {
	name, bias         string  // of the variables; no bias if it is empty
	first, firstOfBias Initial // their first values
}

// First sets the first values of the weights.
func First(f Initial) Option { return func(w *layerSettings) { w.first = f } }

// FirstBias sets the first values of the bias. The default is Zeros.
func FirstBias(f Initial) Option { return func(w *layerSettings) { w.firstOfBias = f } }

// NoBias leaves out the bias.
func NoBias() Option { return func(w *layerSettings) { w.bias = "" } }

// Names names weights and bias, so that a model can keep the names that its
// checkpoints have. The default is the layer's name with .w and .b.
func Names(weight, bias string) Option {
	return func(w *layerSettings) { w.name, w.bias = weight, bias }
}

// weightsOf returns what options make of a layer's defaults.
func weightsOf(name string, first Initial, options []Option) layerSettings {
	w := layerSettings{name: name + ".w", bias: name + ".b", first: first, firstOfBias: Zeros()}
	for _, option := range options {
		option(&w)
	}
	return w
}

func layer(name string) string { return fmt.Sprintf("layer %q", name) }

// Dense multiplies x (rows, features) by a matrix (features, units) and adds a
// bias (units). The weights start from Glorot.
func (b *Builder) Dense(name string, x *Node, units int, options ...Option) *Node {
	if !b.m.claim(name) || !b.m.ranked(layer(name), x, 2, 2, "(rows, features): use Flatten") || !b.m.positive(layer(name), units) {
		return nil
	}
	of := weightsOf(name, Glorot(), options)
	w, bias := b.Variable(of.name, of.first, x.Shape()[1], units), (*Node)(nil)
	if of.bias != "" {
		bias = b.Variable(of.bias, of.firstOfBias, units)
	}
	return b.m.apply(layer(name), func() (*Node, error) { return Linear(x, w, bias) })
}

// Window is a square kernel that moves over images.
type Window struct {
	Size   int // rows and columns
	Stride int // 0 means 1 for a convolution and Size for a pool
	Pad    int // rows and columns around the image
}

func (w Window) or(stride int) Window {
	if w.Stride == 0 {
		w.Stride = stride
	}
	return w
}

const images = "(batch, channels, height, width)"

// Conv correlates images x (batch, channels, height, width) with filters, see
// [ops.Conv2D], and adds a bias. The filters start from Kaiming.
func (b *Builder) Conv(name string, x *Node, filters int, w Window, options ...Option) *Node {
	if !b.m.claim(name) || !b.m.ranked(layer(name), x, 4, 4, images) || !b.m.positive(layer(name), filters, w.Size) {
		return nil
	}
	w = w.or(1)
	of := weightsOf(name, Kaiming(), options)
	k := b.Variable(of.name, of.first, filters, x.Shape()[1], w.Size, w.Size)
	y := b.m.apply(layer(name), func() (*Node, error) { return Conv2D(x, k, w.Stride, w.Pad) })
	if of.bias == "" {
		return y
	}
	bias := b.Variable(of.bias, of.firstOfBias, filters)
	return b.m.apply(layer(name), func() (*Node, error) { return AddBias(y, bias) })
}

// MaxPool is the largest element under a window, see [ops.MaxPool2D].
func (b *Builder) MaxPool(x *Node, w Window) *Node {
	w = w.or(w.Size)
	return b.m.apply("MaxPool", func() (*Node, error) { return MaxPool2D(x, w.Size, w.Stride, w.Pad) })
}

// AvgPool is the mean of the elements under a window, see [ops.AvgPool2D].
func (b *Builder) AvgPool(x *Node, w Window) *Node {
	w = w.or(w.Size)
	return b.m.apply("AvgPool", func() (*Node, error) { return AvgPool2D(x, w.Size, w.Stride, w.Pad) })
}

// BatchNorm is [ops.BatchNorm] with epsilon 1e-5. A step keeps 0.9 of the running
// averages. It adds the variables .scale and .bias and the running .mean and
// .variance, all with the layer's name in front.
func (b *Builder) BatchNorm(name string, x *Node) *Node {
	if !b.m.claim(name) || !b.m.ranked(layer(name), x, 2, 4, "(batch, features) or "+images) {
		return nil
	}
	width := x.Shape()[1]
	scale, bias := b.Variable(name+".scale", Ones(), width), b.Variable(name+".bias", Zeros(), width)
	mean, variance := b.m.leaf(name+".mean", Zeros(), []int{width}), b.m.leaf(name+".variance", Ones(), []int{width})
	return b.m.apply(layer(name), func() (*Node, error) {
		n, err := BatchNorm(x, scale, bias, mean, variance, 0.9, 1e-5, name)
		b.m.follow(trainer.State{Variable: mean, Batch: n.BatchMean, Momentum: n.Momentum},
			trainer.State{Variable: variance, Batch: n.BatchVariance, Momentum: n.Momentum})
		return n.Out, err
	})
}

// Dropout sets a fraction of x to 0 in training, see [ops.Dropout].
func (b *Builder) Dropout(name string, x *Node, fraction float64) *Node {
	if !b.m.claim(name) {
		return nil
	}
	return b.m.apply(layer(name), func() (*Node, error) { return Dropout(x, fraction, name) })
}

// Relu is the larger of x and 0.
func (b *Builder) Relu(x *Node) *Node {
	return b.m.apply("Relu", func() (*Node, error) { return Relu(x) })
}

// Sigmoid is 1 / (1 + exp(-x)).
func (b *Builder) Sigmoid(x *Node) *Node {
	return b.m.apply("Sigmoid", func() (*Node, error) { return Sigmoid(x) })
}

// Tanh is the hyperbolic tangent.
func (b *Builder) Tanh(x *Node) *Node {
	return b.m.apply("Tanh", func() (*Node, error) { return Tanh(x) })
}

// Flatten makes a matrix of x, with one row for each element of the first axis.
func (b *Builder) Flatten(x *Node) *Node {
	return b.m.apply("Flatten", func() (*Node, error) { return Flatten(x) })
}

// Residual is x plus what a branch makes of x (He et al. 2016, "Deep residual
// learning for image recognition"). Both have one shape.
func (b *Builder) Residual(name string, x *Node, branch func(x *Node) *Node) *Node {
	if !b.m.claim(name) {
		return nil
	}
	y := branch(x)
	return b.m.apply(layer(name), func() (*Node, error) {
		if err := same("residual", x, y); err != nil {
			return nil, err
		}
		return gorgonia.Add(x, y)
	})
}
