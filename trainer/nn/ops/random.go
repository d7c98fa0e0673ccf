package ops

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/operation"
	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Uniform adds a tensor of random numbers between low and high to the graph.
// Every run draws new numbers. They depend only on the seed, the name, the
// step, the virtual worker and the element's index, so every host draws the
// same. The name must be unique among the random operations of the graph. The
// tensor has no gradient.
func Uniform(g *gorgonia.ExprGraph, dtype tensor.Dtype, low, high float64, name string, shape ...int) (*gorgonia.Node, error) {
	d := drawing{what: fmt.Sprintf("uniform %q from %v to %v", name, low, high), name: name, a: low, b: high}
	if !(low <= high) || math.IsInf(high-low, 0) {
		return nil, fmt.Errorf("%s: want numbers, the smaller one first", d.what)
	}
	return d.apply(g, dtype, uniform[float32], uniform[float64], shape)
}

// Gaussian is like Uniform, but draws numbers from a normal distribution.
func Gaussian(g *gorgonia.ExprGraph, dtype tensor.Dtype, mean, deviation float64, name string, shape ...int) (*gorgonia.Node, error) {
	d := drawing{what: fmt.Sprintf("gaussian %q mean %v deviation %v", name, mean, deviation), name: name, a: mean, b: deviation}
	if !(deviation >= 0) || math.IsInf(deviation, 0) || math.IsNaN(mean-mean) {
		return nil, fmt.Errorf("%s: want numbers, and a deviation of at least 0", d.what)
	}
	return d.apply(g, dtype, gaussian[float32], gaussian[float64], shape)
}

// mostTrials is the largest number of trials of Binomial. Each element draws
// its trials one by one, so many trials take long.
const mostTrials = 1 << 16

// Binomial is like Uniform, but draws numbers from a binomial distribution:
// the number of successes in `trials` trials that each succeed with
// probability p.
func Binomial(g *gorgonia.ExprGraph, dtype tensor.Dtype, trials int, p float64, name string, shape ...int) (*gorgonia.Node, error) {
	d := drawing{what: fmt.Sprintf("binomial %q of %d trials with p %v", name, trials, p), name: name, a: float64(trials), b: p}
	if trials < 0 || trials > mostTrials || !(p >= 0 && p <= 1) {
		return nil, fmt.Errorf("%s: want 0 to %d trials and a p from 0 to 1", d.what, mostTrials)
	}
	return d.apply(g, dtype, binomial[float32], binomial[float64], shape)
}

// drawing holds the parameters of a random operation. a and b are the
// parameters of its distribution, such as mean and deviation.
type drawing struct {
	what, name string
	a, b       float64
	call       *operation.Call // parameters of the next run, set by Prepare
}

func (d drawing) apply(g *gorgonia.ExprGraph, dtype tensor.Dtype, f32 func(drawing, []float32, [][]float32), f64 func(drawing, []float64, [][]float64),
	shape []int) (*gorgonia.Node, error) {
	if dtype != tensor.Float32 && dtype != tensor.Float64 {
		return nil, fmt.Errorf("%s: the type is %v, want float32 or float64", d.what, dtype)
	}
	if err := claim(g, d.what, d.name); err != nil {
		return nil, err
	}
	d.call = new(operation.Call)
	o := newOp(d.what, dtype, shape, choose(dtype, f32, f64, d)).typed()
	return gorgonia.NewUniqueNode(gorgonia.WithType(o.out.hm), gorgonia.WithOp(&contextual{op: o, stream: d.name, call: d.call}),
		gorgonia.In(g), gorgonia.WithShape(shape...)), nil
}

// claim returns an error if name is empty or if another random operation of
// the graph uses it: both would draw the same numbers.
func claim(g *gorgonia.ExprGraph, what, name string) error {
	if name == "" {
		return fmt.Errorf("%s: it has no name: give each its own", what)
	}
	for _, n := range g.AllNodes() {
		if other, ok := n.Op().(*contextual); ok && other.stream == name {
			return fmt.Errorf("%s: the graph has one of this name: two would draw the same numbers", what)
		}
	}
	return nil
}

// stream returns the random number stream of the next run.
func (d drawing) stream() random.Stream {
	return random.New(d.call.Seed, d.name).Derive(d.call.Step, uint64(d.call.VirtualWorker))
}

// fill fills the slice out. pair(i) returns the elements with the indices 2i
// and 2i+1.
func fill[T float](out []T, pair func(i uint64) (float64, float64)) {
	for i := 0; i < len(out); i += 2 {
		a, b := pair(uint64(i / 2))
		out[i] = T(a)
		if i+1 < len(out) {
			out[i+1] = T(b)
		}
	}
}

func uniform[T float](d drawing, out []T, _ [][]T) {
	s := d.stream()
	fill(out, func(i uint64) (float64, float64) {
		a, b := s.Pair(i)
		return d.a + float64(a*(d.b-d.a)), d.a + float64(b*(d.b-d.a))
	})
}

// gaussian computes two normally distributed numbers from two uniformly
// distributed ones (Box and Muller 1958).
func gaussian[T float](d drawing, out []T, _ [][]T) {
	s := d.stream()
	fill(out, func(i uint64) (float64, float64) {
		a, b := s.Pair(i)
		radius, angle := d.b*math.Sqrt(-2*math.Log(1-a)), 2*math.Pi*b
		return d.a + float64(radius*math.Cos(angle)), d.a + float64(radius*math.Sin(angle))
	})
}

func binomial[T float](d drawing, out []T, _ [][]T) {
	s := d.stream()
	for i := range out {
		of, successes := s.Derive(uint64(i)), 0
		for k := 0; k < int(d.a); k += 2 {
			a, b := of.Pair(uint64(k / 2))
			if a < d.b {
				successes++
			}
			if k+1 < int(d.a) && b < d.b {
				successes++
			}
		}
		out[i] = T(successes)
	}
}
