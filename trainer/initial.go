package trainer

import (
	"fmt"
	"math"
	"strings"

	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The functions Zeros, Uniform, Normal, KaimingUniform and GlorotUniform
// return initialisers for gorgonia.WithInit. They are for code that has no
// Job; the methods of Job, such as [Job.GlorotUniform], take the seed from the
// job. Gorgonia's own initialisers are seeded by the clock. The functions of
// this package give the same values for the same seed and variable name, on
// any machine and in any order:
//
//	w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("w"),
//		gorgonia.WithShape(1024, 256), gorgonia.WithInit(trainer.KaimingUniform(seed, "w")))
//
// WithShape must precede WithInit. The initialisers panic if the type is not
// float32 or float64.
//
// The shape determines fan in and fan out:
//
// - matrix of shape (in, out), as in x·w: in, and out
// - filter of shape (out, in, height, width): in*height*width, and out*height*width
// - vector of length n: n, and n

// GlorotUniform returns an option that initialises a variable as the function
// [GlorotUniform] does. The seed is the job's, and the name is the node's:
//
//	w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("w"), gorgonia.WithShape(1024, 256), job.GlorotUniform())
//
// WithName and WithShape must precede the option. It panics if the node has no
// name.
func (j *Job) GlorotUniform() gorgonia.NodeConsOpt { return j.first(GlorotUniform) }

// KaimingUniform returns an option that initialises a variable as the function
// [KaimingUniform] does, with the job's seed. WithName and WithShape must
// precede the option.
func (j *Job) KaimingUniform() gorgonia.NodeConsOpt { return j.first(KaimingUniform) }

// Uniform returns an option that fills a variable with numbers drawn uniformly
// from [low, high), with the job's seed. WithName and WithShape must precede
// the option.
func (j *Job) Uniform(low, high float64) gorgonia.NodeConsOpt {
	return j.first(func(seed uint64, name string) gorgonia.InitWFn { return Uniform(seed, name, low, high) })
}

// Normal returns an option that fills a variable with numbers drawn from a
// normal distribution, with the job's seed. WithName and WithShape must
// precede the option.
func (j *Job) Normal(mean, deviation float64) gorgonia.NodeConsOpt {
	return j.first(func(seed uint64, name string) gorgonia.InitWFn { return Normal(seed, name, mean, deviation) })
}

func (j *Job) first(values func(seed uint64, name string) gorgonia.InitWFn) gorgonia.NodeConsOpt {
	return func(n *gorgonia.Node) {
		if !n.IsVar() || strings.HasPrefix(n.Name(), "%!s(<nil>)") { // Gorgonia gives a node without WithName a name that begins with this text
			panic("trainer: first values follow from the name of a variable: give gorgonia.WithName before them")
		}
		gorgonia.WithInit(values(j.Seed(), n.Name()))(n)
	}
}

// Zeros returns an initialiser for gorgonia.WithInit that fills a variable
// with zeros.
func Zeros() gorgonia.InitWFn {
	return fillWith(func(uint64, []int) (a, b float64) { return 0, 0 })
}

// Uniform returns an initialiser for gorgonia.WithInit that draws numbers
// uniformly from [low, high). The numbers follow from seed and name.
func Uniform(seed uint64, name string, low, high float64) gorgonia.InitWFn {
	return uniform(seed, name, func([]int) (a, b float64) { return low, high })
}

// Normal returns an initialiser for gorgonia.WithInit that draws from a normal
// distribution by the Box-Muller transform. The numbers follow from seed and
// name.
func Normal(seed uint64, name string, mean, deviation float64) gorgonia.InitWFn {
	s := random.New(seed, name)
	return fillWith(func(i uint64, _ []int) (a, b float64) {
		u, v := s.Pair(i)
		radius := deviation * math.Sqrt(-2*math.Log(1-u)) // u is less than 1, so 1-u is never 0
		sin, cos := math.Sincos(2 * math.Pi * v)
		return mean + float64(radius*cos), mean + float64(radius*sin)
	})
}

// KaimingUniform returns an initialiser for gorgonia.WithInit that draws
// uniformly from [-b, b) with b = sqrt(6/fan in). With this bound, layers of
// ReLUs preserve the variance of their inputs (He et al. 2015, equation 10).
func KaimingUniform(seed uint64, name string) gorgonia.InitWFn {
	return uniform(seed, name, func(shape []int) (low, high float64) {
		in, _ := fans(shape)
		bound := math.Sqrt(6 / in)
		return -bound, bound
	})
}

// GlorotUniform returns an initialiser for gorgonia.WithInit that draws
// uniformly from [-b, b) with b = sqrt(6/(fan in + fan out)) (Glorot and
// Bengio 2010, equation 16).
func GlorotUniform(seed uint64, name string) gorgonia.InitWFn {
	return uniform(seed, name, func(shape []int) (low, high float64) {
		in, out := fans(shape)
		bound := math.Sqrt(6 / (in + out))
		return -bound, bound
	})
}

// uniform returns an initialiser that draws uniformly from the range [low,
// high). The function within computes this range from the variable's shape.
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

// fillWith returns an initialiser that fills a variable in pairs of elements:
// pair(i, shape) returns the elements with the indices 2i and 2i+1.
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
