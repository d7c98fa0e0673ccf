package gpu

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/tensor"
)

// form is what an operation says that it computes; nil if it says nothing.
func form(v *compile.Value) operation.Form {
	if v.Op.Kind != compile.Other {
		return nil
	}
	if d, ok := v.Node.Op().(operation.Described); ok {
		return d.Form()
	}
	return nil
}

// described finds the kernel of an operation that says what it computes.
func described(t kernels.Type, v *compile.Value) (kernels.Operation, error) {
	switch f := form(v).(type) {
	case operation.Activation:
		return activation(t, f, v.Size())
	case operation.Product:
		return kernels.Product(t, kernels.Matrices{Count: 1, M: f.M, N: f.N, K: f.K, TransA: f.Left, TransB: f.Right, Bias: f.Bias})
	case operation.Part:
		shape := []int{f.Outer, f.All, f.Inner}
		if f.Gradient {
			return kernels.SliceGradient(t, shape, 1, f.At, f.At+f.Size, 1)
		}
		return kernels.Slice(t, shape, 1, f.At, f.At+f.Size, 1)
	case operation.ChannelBias:
		return kernels.AddBias(t, f.Batch, f.Channels.Channels, f.Space)
	case operation.ChannelSums:
		return kernels.ChannelSums(t, kernels.Channels(f.Channels))
	case operation.Norm:
		return norm(t, f)
	case operation.Convolution:
		return convolution(t, f)
	case operation.Pool:
		return pool(t, f)
	case operation.Entropy:
		return entropy(t, f, v.Inputs[1].Dtype)
	case operation.RowSoftmax:
		if f.Gradient {
			return kernels.RowSoftmaxGradient(t, v.Size()/f.N, f.N, f.Log)
		}
		return kernels.RowSoftmax(t, v.Size()/f.N, f.N, f.Log)
	case operation.Dropout:
		if !f.Call.Train {
			return kernels.Copy(t, v.Size())
		}
		return kernels.Dropout(t, f.P, v.Size())
	}
	return kernels.Operation{}, errors.New("no kernel")
}

func activation(t kernels.Type, f operation.Activation, n int) (kernels.Operation, error) {
	if f.Gradient {
		return kernels.Binary(t, "nn."+f.Code+" gradient", n, n, n)
	}
	return kernels.Unary(t, "nn."+f.Code, n)
}

func norm(t kernels.Type, f operation.Norm) (kernels.Operation, error) {
	c, train := kernels.Channels(f.Channels), f.Call.Train
	switch {
	case f.Part <= operation.BatchVariance && !train:
		return kernels.Copy(t, c.Channels)
	case f.Part == operation.BatchMean:
		return kernels.ChannelMeans(t, c)
	case f.Part == operation.BatchVariance:
		if c.Batch*c.Space == 1 {
			return kernels.Operation{}, errors.New("a virtual worker has one element per channel, which has no variance: give each more rows")
		}
		return kernels.ChannelVariances(t, c)
	case f.Part == operation.Normalise:
		return kernels.Normalise(t, c, f.Epsilon)
	case f.Part == operation.ScaleGradient:
		return kernels.ScaleGradient(t, c, f.Epsilon)
	}
	return kernels.NormGradient(t, c, f.Epsilon, train)
}

func convolution(t kernels.Type, f operation.Convolution) (kernels.Operation, error) {
	switch w := kernels.Window(f.Window); f.Part {
	case operation.ImageGradient:
		return kernels.ConvolveImageGradient(t, w, f.Filters)
	case operation.FilterGradient:
		return kernels.ConvolveFilterGradient(t, w, f.Filters)
	default:
		return kernels.Convolve(t, w, f.Filters)
	}
}

func pool(t kernels.Type, f operation.Pool) (kernels.Operation, error) {
	switch w := kernels.Window(f.Window); {
	case f.Mean && f.Gradient:
		return kernels.AvgPoolGradient(t, w)
	case f.Mean:
		return kernels.AvgPool(t, w)
	case f.Gradient:
		return kernels.MaxPoolGradient(t, w)
	default:
		return kernels.MaxPool(t, w)
	}
}

// classes are the types of class numbers that kernels read.
var classes = map[tensor.Dtype]kernels.Labels{
	tensor.Int: kernels.Int64Classes, tensor.Int64: kernels.Int64Classes, tensor.Int32: kernels.Int32Classes,
	tensor.Float32: kernels.Float32Classes, tensor.Float64: kernels.Float64Classes,
}

func entropy(t kernels.Type, f operation.Entropy, labels tensor.Dtype) (kernels.Operation, error) {
	of, known := classes[labels]
	if f.Weights {
		of = kernels.Weights
	} else if !known {
		return kernels.Operation{}, fmt.Errorf("no kernel for labels of type %v", labels)
	}
	switch f.Part {
	case operation.EntropyGradient:
		return kernels.CrossEntropyGradient(t, f.Rows, f.Classes, of, f.Divisor)
	case operation.Accuracy:
		return kernels.Accuracy(t, f.Rows, f.Classes, of)
	default:
		return kernels.CrossEntropy(t, f.Rows, f.Classes, of, f.Divisor)
	}
}

// argumentsOf are the inputs that the kernel of a form reads.
func argumentsOf(f operation.Form, inputs []*compile.Value) []*compile.Value {
	switch f := f.(type) {
	case operation.Norm:
		last := len(inputs) - 1
		if f.Part <= operation.BatchVariance {
			if f.Call.Train {
				return inputs[:last] // without the running number
			}
			return inputs[last:]
		}
	case operation.Pool:
		if f.Mean && f.Gradient {
			return inputs[1:]
		}
	}
	return inputs
}

// changing reports whether an operation's launches depend on the call of a run.
func changing(f operation.Form) *operation.Call {
	switch f := f.(type) {
	case operation.Norm:
		return f.Call
	case operation.Dropout:
		return f.Call
	}
	return nil
}
