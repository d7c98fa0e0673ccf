package nn

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/gorgonia"
)

// Option changes a default of a Dense or Conv layer.
type Option func(*layerSettings)

// layerSettings are the options of a Dense or Conv layer.
type layerSettings struct {
	name, bias         string  // names of the weight and bias variables; an empty bias means no bias
	first, firstOfBias Initial // initial values of weights and bias
	groups             int     // number of groups of channels of a Conv
}

// First sets the initial values of a layer's weights.
func First(f Initial) Option { return func(w *layerSettings) { w.first = f } }

// FirstBias sets the initial values of a layer's bias. The default is Zeros.
func FirstBias(f Initial) Option { return func(w *layerSettings) { w.firstOfBias = f } }

// NoBias makes a layer without a bias.
func NoBias() Option { return func(w *layerSettings) { w.bias = "" } }

// Names sets the names of a layer's weight and bias variables, for models
// whose checkpoints use other names. The defaults are the layer's name with .w
// and .b appended.
func Names(weight, bias string) Option {
	return func(w *layerSettings) { w.name, w.bias = weight, bias }
}

// Groups divides the channels and the filters of a Conv into n groups. The
// filters of a group are applied only to the channels of that group. A Dense
// layer accepts only n = 1.
func Groups(n int) Option { return func(w *layerSettings) { w.groups = n } }

// weightsOf returns the settings of a layer: the defaults, changed by options.
func weightsOf(name string, first Initial, options []Option) layerSettings {
	w := layerSettings{name: name + ".w", bias: name + ".b", first: first, firstOfBias: Zeros(), groups: 1}
	for _, option := range options {
		option(&w)
	}
	return w
}

func layer(name string) string { return fmt.Sprintf("layer %q", name) }

// Dense multiplies x (rows, features) by a weight matrix (features, units) and
// adds a bias (units). The default initialization of the weights is Glorot.
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

// Window describes a square kernel that slides over images. For other kernels,
// use Oblong.
type Window struct {
	Size     int // height and width of the kernel
	Stride   int // step of the kernel; 0 means 1 for a convolution, and Size for pooling
	Pad      int // rows and columns of padding on each side of the image
	Dilation int // distance between neighboring kernel elements, for convolutions only; 0 means 1

	across *Window // the window's horizontal parameters; nil if they equal the vertical ones
}

// Oblong returns a window with the vertical parameters of down and the
// horizontal parameters of across: nn.Oblong(nn.Window{Size: 1},
// nn.Window{Size: 7, Pad: 3}) has a kernel of 1 x 7. A convolution whose
// strides or pads differ between the two directions runs on the CPU, even if
// the host has a GPU.
func Oblong(down, across Window) Window {
	across.across = nil
	down.across = &across
	return down
}

// both returns the vertical and the horizontal parameters of the window. It
// replaces a stride of 0 by the parameter stride; if the parameter is 0 too,
// by the kernel size.
func (w Window) both(stride int) (down, across Window) {
	down, across = w, w
	if w.across != nil {
		across = *w.across
	}
	down.Stride = cmp.Or(down.Stride, stride, down.Size)
	across.Stride = cmp.Or(across.Stride, stride, across.Size)
	return down, across
}

func (w Window) steps() ops.Window {
	return ops.Window{Stride: w.Stride, Pad: w.Pad, Dilation: w.Dilation}
}
func (w Window) walk() ops.Walk { return ops.Walk{Kernel: w.Size, Stride: w.Stride, Pad: w.Pad} }

const images = "(batch, channels, height, width)"

// Conv convolves images x (batch, channels, height, width) with filters, see
// [ops.Conv], and adds a bias. The default initialization of the filters is
// Kaiming.
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

// MaxPool moves the window over x and returns the largest element in the
// window at each position, see [ops.MaxPool].
func (b *Builder) MaxPool(x *Node, w Window) *Node { return b.pool("MaxPool", x, w, ops.MaxPool) }

// AvgPool moves the window over x and returns the mean of the elements in the
// window at each position, see [ops.AvgPool].
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

// GlobalAvgPool returns the mean of each channel of images, of shape (batch,
// channels).
func (b *Builder) GlobalAvgPool(x *Node) *Node {
	return b.m.apply("GlobalAvgPool", func() (*Node, error) { return GlobalAvgPool(x) })
}

// BatchNorm adds an [ops.BatchNorm] with epsilon 1e-5. Each step keeps 0.9 of
// the old running averages. The layer adds the trainable variables .scale and
// .bias and the running averages .mean and .variance, each prefixed with the
// layer's name.
func (b *Builder) BatchNorm(name string, x *Node) *Node { return b.BatchNormEpsilon(name, x, 1e-5) }

// BatchNormEpsilon is BatchNorm with the given epsilon, which is added to
// variances.
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

// Dropout sets a random fraction of the elements of x to 0 in training, see
// [ops.Dropout].
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

// Flatten reshapes x to a matrix with one row for each element of the first
// axis.
func (b *Builder) Flatten(x *Node) *Node {
	return b.m.apply("Flatten", func() (*Node, error) { return Flatten(x) })
}

// Residual returns x + branch(x) (He et al. 2016, "Deep residual learning for
// image recognition"). The output of branch must have the shape of x.
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
