package nn

import (
	"github.com/plx-run/plx/trainer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Initial says what a variable begins with. The zero value means zeros. Random
// values follow from the builder's seed and the variable's name.
type Initial struct {
	values func(seed uint64, name string) gorgonia.InitWFn // nil means zeros
}

// Zeros starts a variable from zeros.
func Zeros() Initial {
	return Initial{func(uint64, string) gorgonia.InitWFn { return trainer.Zeros() }}
}

// Ones starts a variable from ones.
func Ones() Initial { return Initial{func(uint64, string) gorgonia.InitWFn { return gorgonia.Ones() }} }

// Uniform starts a variable from numbers of [low, high).
func Uniform(low, high float64) Initial {
	return Initial{func(seed uint64, name string) gorgonia.InitWFn { return trainer.Uniform(seed, name, low, high) }}
}

// Normal starts a variable from the normal distribution.
func Normal(mean, deviation float64) Initial {
	return Initial{func(seed uint64, name string) gorgonia.InitWFn { return trainer.Normal(seed, name, mean, deviation) }}
}

// Glorot is [trainer.GlorotUniform], what the weights of most layers begin with.
func Glorot() Initial { return Initial{trainer.GlorotUniform} }

// Kaiming is [trainer.KaimingUniform], for weights before rectifiers.
func Kaiming() Initial { return Initial{trainer.KaimingUniform} }

// Batch is the value of an input: rows of a batch, one after the other, each of
// shape features. Without features each row is a number. It uses the memory of
// values and panics if they are no whole number of rows.
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
