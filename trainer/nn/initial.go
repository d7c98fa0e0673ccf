package nn

import (
	"github.com/plx-run/plx/trainer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Initial defines the initial values of a variable. The zero value means
// zeros. Random values depend only on the builder's seed and the variable's
// name.
type Initial struct {
	values func(seed uint64, name string) gorgonia.InitWFn // returns the function that fills the variable; nil means zeros
}

// Zeros initializes a variable with zeros.
func Zeros() Initial {
	return Initial{func(uint64, string) gorgonia.InitWFn { return trainer.Zeros() }}
}

// Ones initializes a variable with ones.
func Ones() Initial { return Initial{func(uint64, string) gorgonia.InitWFn { return gorgonia.Ones() }} }

// Uniform initializes a variable with random numbers from a uniform
// distribution over [low, high).
func Uniform(low, high float64) Initial {
	return Initial{func(seed uint64, name string) gorgonia.InitWFn { return trainer.Uniform(seed, name, low, high) }}
}

// Normal initializes a variable with random numbers from a normal
// distribution.
func Normal(mean, deviation float64) Initial {
	return Initial{func(seed uint64, name string) gorgonia.InitWFn { return trainer.Normal(seed, name, mean, deviation) }}
}

// Glorot is [trainer.GlorotUniform], the default initialization of the weights
// of most layers.
func Glorot() Initial { return Initial{trainer.GlorotUniform} }

// Kaiming is [trainer.KaimingUniform], for the weights of a layer that is
// followed by Relu.
func Kaiming() Initial { return Initial{trainer.KaimingUniform} }

// Batch returns values as a tensor of shape (rows, features...), for use as a
// feed. Without features, the shape is (len(values)). The tensor shares the
// memory of values. Batch panics if the length of values is not a multiple of
// the row size.
//
//	trainer.Feed{"x": nn.Batch(pixels, 784), "y": nn.Batch(classes)}
func Batch[T float32 | float64 | int | int32 | int64](values []T, features ...int) *tensor.Dense {
	shape := append([]int{len(values)}, features...)
	for _, size := range features {
		if size < 1 || shape[0]%size != 0 {
			panic("nn: " + sizes([]int{len(values)}) + " values are no whole number of rows of (" + sizes(features) + ")")
		}
		shape[0] /= size
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values))
}
