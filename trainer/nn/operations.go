package nn

import (
	"fmt"

	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/gorgonia"
)

// Node is a node of a Gorgonia graph.
type Node = gorgonia.Node

// Types that package ops defines.
type (
	LSTM       = ops.LSTM
	GRU        = ops.GRU
	Sequence   = ops.Sequence
	Normalised = ops.Normalised
	Candidates = ops.Candidates
	Sampler    = ops.Sampler
)

// Linear is [ops.Linear]: x·w + b; a nil b means no bias.
func Linear(x, w, b *Node) (*Node, error) { return ops.Linear(x, w, b) }

// AddBias is [ops.AddBias]: x with b added to axis 1.
func AddBias(x, b *Node) (*Node, error) { return ops.AddBias(x, b) }

// Relu is [ops.Relu]: the larger of x and 0.
func Relu(x *Node) (*Node, error) { return ops.Relu(x) }

// Sigmoid is [ops.Sigmoid]: 1 / (1 + exp(-x)).
func Sigmoid(x *Node) (*Node, error) { return ops.Sigmoid(x) }

// Tanh is [ops.Tanh]: the hyperbolic tangent.
func Tanh(x *Node) (*Node, error) { return ops.Tanh(x) }

// Softmax is [ops.Softmax]: exp(x) / sum(exp(x)) over the last axis.
func Softmax(x *Node) (*Node, error) { return ops.Softmax(x) }

// LogSoftmax is [ops.LogSoftmax]: the logarithm of Softmax.
func LogSoftmax(x *Node) (*Node, error) { return ops.LogSoftmax(x) }

// Flatten is [ops.Flatten]: it reshapes x to a matrix with one row for each
// element of the first axis.
func Flatten(x *Node) (*Node, error) { return ops.Flatten(x) }

// Rows is [ops.Rows]: the rows of a table with the numbers in index.
func Rows(table, index *Node) (*Node, error) { return ops.Rows(table, index) }

// Attention is [ops.Attention]: for each query, a weighted mean of the rows of
// memory.
func Attention(query, memory, mask *Node) (*Node, error) { return ops.Attention(query, memory, mask) }

// CrossEntropy is [ops.CrossEntropy]: the mean over the rows of -log(softmax(logits)[label]).
func CrossEntropy(logits, labels *Node) (*Node, error) { return ops.CrossEntropy(logits, labels) }

// SmoothCrossEntropy is [ops.SmoothCrossEntropy]: CrossEntropy with a fraction
// of each label divided equally among all classes.
func SmoothCrossEntropy(logits, labels *Node, fraction float64) (*Node, error) {
	return ops.SmoothCrossEntropy(logits, labels, fraction)
}

// SumCrossEntropy is [ops.SumCrossEntropy]: CrossEntropy summed over the rows.
func SumCrossEntropy(logits, labels *Node) (*Node, error) { return ops.SumCrossEntropy(logits, labels) }

// Accuracy is [ops.Accuracy]: the fraction of rows whose label has the largest logit.
func Accuracy(logits, labels *Node) (*Node, error) { return ops.Accuracy(logits, labels) }

// RowDots returns the dot product of each row of x with the same row of y.
// Both have shape (rows, width); the result is a vector of length rows.
func RowDots(x, y *Node) (*Node, error) {
	if err := same("products of rows", x, y); err != nil {
		return nil, err
	}
	if x.Dims() != 2 {
		return nil, fmt.Errorf("products of rows: x is (%s), want (rows, width)", sizes(x.Shape()))
	}
	products, err := gorgonia.HadamardProd(x, y)
	if err != nil {
		return nil, err
	}
	return gorgonia.Sum(products, 1)
}

// Concat is [ops.Concat]: it joins the xs along an axis.
func Concat(axis int, xs ...*Node) (*Node, error) { return ops.Concat(axis, xs...) }

// Slice is [ops.Slice]: the elements of x with indices from <= i < to along an
// axis.
func Slice(x *Node, axis, from, to int) (*Node, error) { return ops.Slice(x, axis, from, to) }

// Dropout is [ops.Dropout]: in training, it sets each element of x to 0 with
// probability p.
func Dropout(x *Node, p float64, name string) (*Node, error) { return ops.Dropout(x, p, name) }

// Conv2D is [ops.Conv2D]: the convolution of images with filters.
func Conv2D(x, filters *Node, stride, pad int) (*Node, error) {
	return ops.Conv2D(x, filters, stride, pad)
}

// MaxPool2D is [ops.MaxPool2D]: the maximum over each position of a square
// kernel.
func MaxPool2D(x *Node, kernel, stride, pad int) (*Node, error) {
	return ops.MaxPool2D(x, kernel, stride, pad)
}

// AvgPool2D is [ops.AvgPool2D]: the mean over each position of a square
// kernel.
func AvgPool2D(x *Node, kernel, stride, pad int) (*Node, error) {
	return ops.AvgPool2D(x, kernel, stride, pad)
}

// GlobalAvgPool is [ops.GlobalAvgPool]: the mean of each channel.
func GlobalAvgPool(x *Node) (*Node, error) { return ops.GlobalAvgPool(x) }

// BatchNorm is [ops.BatchNorm]: it normalizes each channel of x to mean 0 and
// variance 1, then applies scale and bias.
func BatchNorm(x, scale, bias, runningMean, runningVariance *Node, momentum, epsilon float64, name string) (Normalised, error) {
	return ops.BatchNorm(x, scale, bias, runningMean, runningVariance, momentum, epsilon, name)
}

// SampledCrossEntropy is [ops.SampledCrossEntropy]: the cross entropy of a softmax over a sample of the classes.
func SampledCrossEntropy(x *Node, c Candidates) (loss, estimate *Node, err error) {
	return ops.SampledCrossEntropy(x, c)
}

// NewSampler is [ops.NewSampler]: it returns a sampler that draws `samples` of
// the classes for a sampled softmax.
func NewSampler(classes, samples int) (*Sampler, error) { return ops.NewSampler(classes, samples) }
