package trainer

import (
	"fmt"
	"math"
	"strings"

	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Initialisers for gorgonia.WithInit, where there is no job to take the seed from: see
// [Job.GlorotUniform]. Unlike Gorgonia's own, which are seeded
// by the clock, they give the same values for the same seed and variable
// name, on any machine and in any order:
//
//	w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("w"),
//		gorgonia.WithShape(1024, 256), gorgonia.WithInit(trainer.KaimingUniform(seed, "w")))
//
// WithShape must stand before WithInit. The fans of a shape: a matrix (in, out)
// as in x·w has in and out; with more dimensions (out, in, heights...) both count the filter's area too; a vector
// of n has n and n. Types: float32 and float64, a panic otherwise.

// GlorotUniform gives a variable first values as [GlorotUniform] does, from the job's seed
// and the node's name:
//
//	w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("w"), gorgonia.WithShape(1024, 256), job.GlorotUniform())
//
// It stands after WithName and WithShape, and panics if the node has no name. The same is
// true of KaimingUniform, Uniform and Normal.
func (j *Job) GlorotUniform() gorgonia.NodeConsOpt { return j.first(GlorotUniform) }

// KaimingUniform gives a variable first values as [KaimingUniform] does.
func (j *Job) KaimingUniform() gorgonia.NodeConsOpt { return j.first(KaimingUniform) }

// Uniform gives a variable first values of [low, high).
func (j *Job) Uniform(low, high float64) gorgonia.NodeConsOpt {
	return j.first(func(seed uint64, name string) gorgonia.InitWFn { return Uniform(seed, name, low, high) })
}

// Normal gives a variable first values of the normal distribution.
func (j *Job) Normal(mean, deviation float64) gorgonia.NodeConsOpt {
	return j.first(func(seed uint64, name string) gorgonia.InitWFn { return Normal(seed, name, mean, deviation) })
}

func (j *Job) first(values func(seed uint64, name string) gorgonia.InitWFn) gorgonia.NodeConsOpt {
	return func(n *gorgonia.Node) {
		if !n.IsVar() || strings.HasPrefix(n.Name(), "%!s(<nil>)") { // what Gorgonia calls a variable without a name
			panic("trainer: first values follow from the name of a variable: give gorgonia.WithName before them")
		}
		gorgonia.WithInit(values(j.Seed(), n.Name()))(n)
	}
}

// Zeros fills a variable with zeros.
func Zeros() gorgonia.InitWFn {
	return fillWith(func(uint64, []int) (a, b float64) { return 0, 0 })
}

// Uniform draws from [low, high).
func Uniform(seed uint64, name string, low, high float64) gorgonia.InitWFn {
	return uniform(seed, name, func([]int) (a, b float64) { return low, high })
}

// Normal draws from the normal distribution (Box and Muller 1958).
func Normal(seed uint64, name string, mean, deviation float64) gorgonia.InitWFn {
	s := random.New(seed, name)
	return fillWith(func(i uint64, _ []int) (a, b float64) {
		u, v := s.Pair(i)
		radius := deviation * math.Sqrt(-2*math.Log(1-u)) // 1-u is never 0
		sin, cos := math.Sincos(2 * math.Pi * v)
		return mean + float64(radius*cos), mean + float64(radius*sin)
	})
}

// KaimingUniform draws from [-b, b) with b = sqrt(6/fan in): it keeps the
// variance through layers of rectifiers (He et al. 2015, equation 10).
func KaimingUniform(seed uint64, name string) gorgonia.InitWFn {
	return uniform(seed, name, func(shape []int) (low, high float64) {
		in, _ := fans(shape)
		bound := math.Sqrt(6 / in)
		return -bound, bound
	})
}

// GlorotUniform draws from [-b, b) with b = sqrt(6/(fan in + fan out))
// (Glorot and Bengio 2010, equation 16).
func GlorotUniform(seed uint64, name string) gorgonia.InitWFn {
	return uniform(seed, name, func(shape []int) (low, high float64) {
		in, out := fans(shape)
		bound := math.Sqrt(6 / (in + out))
		return -bound, bound
	})
}

// uniform draws from the range that a shape has.
func uniform(seed uint64, name string, within func(shape []int) (low, high float64)) gorgonia.InitWFn {
	s := random.New(seed, name)
	return fillWith(func(i uint64, shape []int) (a, b float64) {
		low, high := within(shape)
		a, b = s.Pair(i)
		return low + float64(a*(high-low)), low + float64(b*(high-low))
	})
}

func fans(shape []int) (in, out float64) {
	switch len(shape) {
	case 0:
		return 1, 1
	case 1:
		return float64(shape[0]), float64(shape[0])
	case 2:
		return float64(shape[0]), float64(shape[1])
	}
	area := 1
	for _, d := range shape[2:] {
		area *= d
	}
	return float64(shape[1] * area), float64(shape[0] * area)
}

// fillWith makes an initialiser of a function that gives the elements 2i and
// 2i+1 of a shape.
func fillWith(pair func(i uint64, shape []int) (a, b float64)) gorgonia.InitWFn {
	return func(dt tensor.Dtype, shape ...int) any {
		switch dt {
		case tensor.Float32:
			return draw[float32](pair, shape)
		case tensor.Float64:
			return draw[float64](pair, shape)
		}
		panic(fmt.Sprintf("trainer: initialise %v: want float32 or float64", dt))
	}
}

func draw[T float32 | float64](pair func(i uint64, shape []int) (a, b float64), shape []int) []T {
	x := make([]T, tensor.Shape(shape).TotalSize())
	for i := 0; i < len(x); i += 2 {
		a, b := pair(uint64(i/2), shape)
		if x[i] = T(a); i+1 < len(x) {
			x[i+1] = T(b)
		}
	}
	return x
}
