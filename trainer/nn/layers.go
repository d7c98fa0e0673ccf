package nn

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/gorgonia"
)

// Option changes the variables of a Dense or Conv.
type Option func(*layerSettings)

// layerSettings are the variables of a Dense or Conv.
type layerSettings struct {
	name, bias         string  // of the variables; no bias if it is empty
	first, firstOfBias Initial // their first values
	groups             int     // of a Conv
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

// Groups divides the channels and the filters of a Conv into n groups, and the filters of
// a group see its channels only. A Dense refuses more than one.
func Groups(n int) Option { return func(w *layerSettings) { w.groups = n } }

// weightsOf returns what options make of a layer's defaults.
func weightsOf(name string, first Initial, options []Option) layerSettings {
	w := layerSettings{name: name + ".w", bias: name + ".b", first: first, firstOfBias: Zeros(), groups: 1}
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
	if of.groups != 1 {
		b.m.keep(fmt.Errorf("%s: %d groups: a Dense has none", layer(name), of.groups))
		return nil
	}
	w, bias := b.Variable(of.name, of.first, x.Shape()[1], units), (*Node)(nil)
	if of.bias != "" {
		bias = b.Variable(of.bias, of.firstOfBias, units)
	}
	return b.m.apply(layer(name), func() (*Node, error) { return Linear(x, w, bias) })
}

// Window is a square kernel that moves over images. Oblong makes others.
type Window struct {
	Size     int // rows and columns
	Stride   int // 0 means 1 for a convolution and Size for a pool
	Pad      int // rows and columns around the image
	Dilation int // of a convolution: rows and columns from one element of the kernel to the next; 0 means 1

	across *Window // what holds for columns; nil: what holds for rows
}

// Oblong is a window whose rows are those of down and whose columns are those of across:
// nn.Oblong(nn.Window{Size: 1}, nn.Window{Size: 7, Pad: 3}) is 1 x 7. Such convolutions
// with other strides or pads across than down are computed on the CPU.
func Oblong(down, across Window) Window {
	across.across = nil
	down.across = &across
	return down
}

// both returns what holds for rows and for columns. A stride of 0 becomes stride, or the
// size if that is 0 too.
func (w Window) both(stride int) (down, across Window) {
	down, across = w, w
	if w.across != nil {
		across = *w.across
	}
	down.Stride = cmp.Or(down.Stride, stride, down.Size)
	across.Stride = cmp.Or(across.Stride, stride, across.Size)
	return down, across
}

func (w Window) steps() ops.Steps {
	return ops.Steps{Stride: w.Stride, Pad: w.Pad, Dilation: w.Dilation}
}
func (w Window) walk() ops.Walk { return ops.Walk{Kernel: w.Size, Stride: w.Stride, Pad: w.Pad} }

const images = "(batch, channels, height, width)"

// Conv correlates images x (batch, channels, height, width) with filters, see
// [ops.Conv], and adds a bias. The filters start from Kaiming.
func (b *Builder) Conv(name string, x *Node, filters int, w Window, options ...Option) *Node {
	down, across := w.both(1)
	if !b.m.claim(name) || !b.m.ranked(layer(name), x, 4, 4, images) || !b.m.positive(layer(name), filters, min(down.Size, across.Size)) {
		return nil
	}
	of := weightsOf(name, Kaiming(), options)
	channels := x.Shape()[1]
	if of.groups < 1 || channels%of.groups != 0 || filters%of.groups != 0 {
		b.m.keep(fmt.Errorf("%s: %d groups, want a divisor of its %d channels and of its %d filters", layer(name), of.groups, channels, filters))
		return nil
	}
	k := b.Variable(of.name, of.first, filters, channels/of.groups, down.Size, across.Size)
	y := b.m.apply(layer(name), func() (*Node, error) { return ops.Conv(x, k, down.steps(), across.steps(), of.groups) })
	if of.bias == "" {
		return y
	}
	bias := b.Variable(of.bias, of.firstOfBias, filters)
	return b.m.apply(layer(name), func() (*Node, error) { return AddBias(y, bias) })
}

// MaxPool is the largest element under a window, see [ops.MaxPool].
func (b *Builder) MaxPool(x *Node, w Window) *Node { return b.pool("MaxPool", x, w, ops.MaxPool) }

// AvgPool is the mean of the elements under a window, see [ops.AvgPool].
func (b *Builder) AvgPool(x *Node, w Window) *Node { return b.pool("AvgPool", x, w, ops.AvgPool) }

func (b *Builder) pool(what string, x *Node, w Window, pool func(x *Node, down, across ops.Walk) (*Node, error)) *Node {
	return b.m.apply(what, func() (*Node, error) {
		down, across := w.both(0)
		if down.Dilation > 1 || across.Dilation > 1 {
			return nil, errors.New("its window is dilated: only a convolution can be")
		}
		return pool(x, down.walk(), across.walk())
	})
}

// GlobalAvgPool is the mean of each channel of images, (batch, channels).
func (b *Builder) GlobalAvgPool(x *Node) *Node {
	return b.m.apply("GlobalAvgPool", func() (*Node, error) { return GlobalAvgPool(x) })
}

// BatchNorm is [ops.BatchNorm] with epsilon 1e-5. A step keeps 0.9 of the running
// averages. It adds the variables .scale and .bias and the running .mean and
// .variance, all with the layer's name in front.
func (b *Builder) BatchNorm(name string, x *Node) *Node { return b.BatchNormEpsilon(name, x, 1e-5) }

// BatchNormEpsilon is a BatchNorm with another epsilon, which is added to variances.
func (b *Builder) BatchNormEpsilon(name string, x *Node, epsilon float64) *Node {
	if !b.m.claim(name) || !b.m.ranked(layer(name), x, 2, 4, "(batch, features) or "+images) {
		return nil
	}
	width := x.Shape()[1]
	scale, bias := b.Variable(name+".scale", Ones(), width), b.Variable(name+".bias", Zeros(), width)
	mean, variance := b.m.leaf(name+".mean", Zeros(), []int{width}), b.m.leaf(name+".variance", Ones(), []int{width})
	return b.m.apply(layer(name), func() (*Node, error) {
		n, err := BatchNorm(x, scale, bias, mean, variance, 0.9, epsilon, name)
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
