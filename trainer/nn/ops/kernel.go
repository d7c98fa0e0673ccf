package ops

import (
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/nn/recurrent"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// kernel computes out from in. The caller has checked the sizes, types and
// memory order of all values. A kernel allocates nothing and keeps no
// reference to its arguments.
type kernel func(out gorgonia.Value, in []gorgonia.Value) error

// chooseValues returns f32 or f64 as a kernel, depending on dtype, with the
// parameters p. It serves kernels that can fail or that read values of other
// types; for all others, use choose.
func chooseValues[P any](dtype tensor.Dtype, f32, f64 func(P, gorgonia.Value, []gorgonia.Value) error, p P) kernel {
	f := f64
	if dtype == tensor.Float32 {
		f = f32
	}
	return func(out gorgonia.Value, in []gorgonia.Value) error { return f(p, out, in) }
}

// choose is like chooseValues, but for kernels that work on slices because all
// their values have the type dtype.
func choose[P any](dtype tensor.Dtype, f32 func(P, []float32, [][]float32), f64 func(P, []float64, [][]float64), p P) kernel {
	if dtype == tensor.Float32 {
		return overMemory(func(out []float32, in [][]float32) { f32(p, out, in) })
	}
	return overMemory(func(out []float64, in [][]float64) { f64(p, out, in) })
}

// none is the parameter type of kernels that have no parameters.
type none struct{}

// kernels are the functions that compute an operation with one input, and its
// gradient, for float32 and float64.
type kernels[P any] struct {
	run32    func(P, []float32, [][]float32)
	run64    func(P, []float64, [][]float64)
	diff32   func(P, []float32, [][]float32)
	diff64   func(P, []float64, [][]float64)
	byResult bool // true if the gradient is computed from the operation's result, false if from its input
	// gpu returns how GPUs compute the operation, or its gradient, for n
	// elements. nil means that only the CPU computes it.
	gpu func(n int, gradient bool) *operation.GPU
}

// apply adds the operation, with the parameters p, to the graph of x.
func (k kernels[P]) apply(what string, p P, x *gorgonia.Node, shape tensor.Shape) (*gorgonia.Node, error) {
	dtype := x.Dtype()
	diff := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		from := in[0]
		if k.byResult {
			from = y
		}
		d := newOp("gradient of "+what, dtype, x.Shape(), choose(dtype, k.diff32, k.diff64, p))
		return one(d.on(k.onGPU(x, true)).apply(from, dy))
	}
	o := newOp(what, dtype, shape, choose(dtype, k.run32, k.run64, p)).with(diff, 0)
	return o.on(k.onGPU(x, false)).apply(x)
}

func (k kernels[P]) onGPU(x *gorgonia.Node, gradient bool) *operation.GPU {
	if k.gpu == nil {
		return nil
	}
	return k.gpu(memory.Elements(x.Shape()), gradient)
}

// pass is like choose, but f32 and f64 are functions that make the kernel. So
// each kernel can have scratch memory of its element type.
func pass[P any](dtype tensor.Dtype, f32 func(P) recurrent.Pass[float32], f64 func(P) recurrent.Pass[float64], p P) kernel {
	if dtype == tensor.Float32 {
		return overMemory(f32(p))
	}
	return overMemory(f64(p))
}

func overMemory[T float](run recurrent.Pass[T]) kernel {
	var memory [][]T // memory of the inputs; the slice is reused, so that a run allocates nothing
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		memory = memory[:0]
		for _, v := range in {
			memory = append(memory, data[T](v))
		}
		run(data[T](out), memory)
		return nil
	}
}
