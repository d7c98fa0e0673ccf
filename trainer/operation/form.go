package operation

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/random"
)

// Described is implemented by an operation that devices other than the CPU can
// compute with kernels of their own. Form returns nil for an operation that only
// its own Run computes.
type Described interface {
	Form() Form
}

// Form says what an operation computes: one of the types below. The operands are
// the operation's inputs in their order, row-major. All numbers are of the
// result's type, if a form does not say otherwise.
type Form interface{ form() }

// Activation works on elements. The gradient of one takes the result of the
// activation and the gradient of that.
type Activation struct {
	Code     string // "relu", "tanh" or "sigmoid"
	Gradient bool
}

// Product is a product of two matrices with a result of M x N. Each element is a
// sum of K terms. An operand that is turned lies transposed in memory.
type Product struct {
	M, N, K     int
	Left, Right bool // the operand is turned
	Bias        bool // a third operand of N elements is added to each row
}

// Part is the piece [At, At+Size) of the middle one of three dimensions, which has
// All elements. Its gradient writes the piece into zeros.
type Part struct {
	Outer, All, Inner, At, Size int
	Gradient                    bool
}

// Channels are the sizes of (batch, channels, space).
type Channels struct{ Batch, Channels, Space int }

// ChannelBias adds the second operand's element to each channel of the first.
type ChannelBias struct{ Channels }

// ChannelSums adds the elements of each channel.
type ChannelSums struct{ Channels }

// Norm is an operation of a batch normalisation. Its operands are those of package
// nn's function of the same name.
type Norm struct {
	Part    NormPart
	Epsilon float64
	Call    *Call // of the next run: an evaluation takes the running mean and variance
	Channels
}

// NormPart is what a Norm computes.
type NormPart int

// The operations of a batch normalisation.
const (
	BatchMean NormPart = iota
	BatchVariance
	Normalise
	ScaleGradient
	NormGradient
)

// Window is a kernel that moves over images (batch, channels, height, width) in
// strides, with Pad zeros on all four sides.
type Window struct {
	Batch, Channels, Height, Width int
	KernelHeight, KernelWidth      int
	Stride, Pad                    int
}

// Convolution correlates images with filters. Of the gradients, that of the image
// takes the filters and the result's gradient, and that of the filters takes the
// images and the result's gradient.
type Convolution struct {
	Window
	Filters int
	Part    ConvolutionPart
}

// ConvolutionPart is what a Convolution computes.
type ConvolutionPart int

// A convolution and its gradients.
const (
	Convolve ConvolutionPart = iota
	ImageGradient
	FilterGradient
)

// Pool is the largest element or the mean under a window. Its gradient takes the
// images and the result's gradient; that of a mean reads only the latter.
type Pool struct {
	Window
	Mean, Gradient bool
}

// Entropy is a cross entropy of rows of logits with labels, divided by Divisor, its
// gradient, or the fraction of rows with the right class.
type Entropy struct {
	Part          EntropyPart
	Rows, Classes int
	Divisor       float64
	Weights       bool // the labels are a weight for each class; false means one class number for each row
}

// Class is the class of a row with a label, which must be a class number.
func (e Entropy) Class(row int, label float64) (int, error) {
	if !(label >= 0 && label < float64(e.Classes)) || label != math.Trunc(label) {
		return 0, fmt.Errorf("row %d has the label %v, want a class from 0 to %d", row, label, e.Classes-1)
	}
	return int(label), nil
}

// EntropyPart is what an Entropy computes.
type EntropyPart int

// A cross entropy, its gradient from logits, labels and the gradient of the loss,
// and the accuracy.
const (
	EntropyLoss EntropyPart = iota
	EntropyGradient
	Accuracy
)

// RowSoftmax is the softmax of rows of N elements, or its logarithm. The gradient
// takes the result and the result's gradient.
type RowSoftmax struct {
	N             int
	Log, Gradient bool
}

// Dropout drops elements with probability P, of a value or of its gradient.
type Dropout struct {
	P    float64
	Name string
	Call *Call // of the next run: an evaluation copies the operand
}

// Stream is the random stream that says what the next run drops.
func (d Dropout) Stream() random.Stream {
	return random.New(d.Call.Seed, d.Name).Derive(d.Call.Step, uint64(d.Call.VirtualWorker))
}

func (Activation) form()  {}
func (Product) form()     {}
func (Part) form()        {}
func (ChannelBias) form() {}
func (ChannelSums) form() {}
func (Norm) form()        {}
func (Convolution) form() {}
func (Pool) form()        {}
func (Entropy) form()     {}
func (RowSoftmax) form()  {}
func (Dropout) form()     {}
