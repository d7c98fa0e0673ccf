package kernels_test

import (
	"fmt"
	"testing"

	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/gorgonia"
)

var windows = []Window{
	{Batch: 1, Channels: 1, Height: 1, Width: 1, KernelHeight: 1, KernelWidth: 1, Stride: 1},
	{Batch: 3, Channels: 2, Height: 6, Width: 5, KernelHeight: 3, KernelWidth: 3, Stride: 1, Pad: 1},
	{Batch: 2, Channels: 3, Height: 9, Width: 8, KernelHeight: 2, KernelWidth: 2, Stride: 2},
	{Batch: 5, Channels: 1, Height: 7, Width: 11, KernelHeight: 3, KernelWidth: 3, Stride: 2, Pad: 2},
	{Batch: 2, Channels: 4, Height: 5, Width: 5, KernelHeight: 2, KernelWidth: 2, Stride: 3, Pad: 1},
}

// A batch has more images than a sum has parts, so a part contains several
// images.
func TestFilterGradientOfManyImages(t *testing.T) {
	w := Window{Batch: 67, Channels: 1, Height: 3, Width: 3, KernelHeight: 2, KernelWidth: 2, Stride: 1}
	x, f, dy := noise[float32](6, 67*9), noise[float32](7, 4), noise[float32](8, 67*4)
	want := onCPU(t, 2, dy, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return ops.Conv2D(in[0], in[1], 1, 0) },
		of(x, shapeOf(w)...), of(f, 1, 1, 2, 2)).gradients[1]
	got := compute(t, 4, x, dy)(ConvolveFilterGradient(Float32, w, 1))
	same(t, "gradient", BoundOf("convolution", Float32), got, want, 268*sumOf(x))
}

func shapeOf(w Window) []int { return []int{w.Batch, w.Channels, w.Height, w.Width} }

func TestConvolutionMatchesCPU(t *testing.T) {
	wide := Window{Batch: 2, Channels: 3, Height: 6, Width: 7, KernelHeight: 2, KernelWidth: 5, Stride: 1, Pad: 2}
	for _, w := range append(windows, wide) {
		filters := 1 + w.Batch%2*4
		t.Run(fmt.Sprintf("%+v %d", w, filters), func(t *testing.T) {
			checkConvolution[float32](t, w, filters)
			if w.Batch == 3 {
				checkConvolution[float64](t, w, filters)
			}
		})
	}
}

func checkConvolution[T float](t *testing.T, w Window, filters int) {
	x, f := noise[T](1, size(shapeOf(w))), noise[T](2, filters*w.Channels*w.KernelHeight*w.KernelWidth)
	shape := []int{filters, w.Channels, w.KernelHeight, w.KernelWidth}
	build := func(in gorgonia.Nodes) (*gorgonia.Node, error) { return ops.Conv2D(in[0], in[1], w.Stride, w.Pad) }
	n := len(onCPU(t, 0, nil, build, of(x, shapeOf(w)...), of(f, shape...)).out)
	dy := noise[T](3, n)
	want := onCPU(t, 2, dy, build, of(x, shapeOf(w)...), of(f, shape...))
	b := BoundOf("convolution", number[T]())
	sums := onCPU(t, 2, magnitudes(dy), build, of(magnitudes(x), shapeOf(w)...), of(magnitudes(f), shape...))
	check := func(what string, want, sums []T, terms int, call func(Type, Window, int) (Operation, error), p, q []T) {
		t.Helper()
		slack := make([]float64, len(want))
		for i, v := range sums {
			slack[i] = float64(terms) * float64(v)
		}
		o, err := call(number[T](), w, filters)
		same(t, what, b, compute(t, len(want), p, q)(o, err), want, slack...)
	}
	area := w.KernelHeight * w.KernelWidth
	check("convolution", want.out, sums.out, w.Channels*area, Convolve, x, f)
	check("gradient of x", want.gradients[0], sums.gradients[0], filters*area, ConvolveImageGradient, f, dy)
	check("gradient of filters", want.gradients[1], sums.gradients[1], n/filters, ConvolveFilterGradient, x, dy)
}

func TestPoolsMatchCPU(t *testing.T) {
	for _, w := range windows {
		if w.Pad >= w.KernelHeight {
			w.Pad = w.KernelHeight - 1
		}
		bothTypes(t, fmt.Sprintf("%+v", w), func(t *testing.T) { checkPools[float32](t, w) }, func(t *testing.T) { checkPools[float64](t, w) })
	}
}

func checkPools[T float](t *testing.T, w Window) {
	x := noise[T](4, size(shapeOf(w)))
	for i := range x { // ties, and a NaN
		x[i] = T(int(x[i] * 2))
	}
	if len(x) > 20 {
		x[17] = x[17] / 0 * 0
	}
	for i := range x {
		if x[i] == 0 {
			x[i] = 0 // replaces -0, because the sign of the maximum of 0 and -0 depends on their order
		}
	}
	for name, pool := range map[string]struct {
		build    func(*gorgonia.Node, int, int, int) (*gorgonia.Node, error)
		out      func(Type, Window) (Operation, error)
		gradient func(Type, Window) (Operation, error)
	}{"max": {ops.MaxPool2D, MaxPool, MaxPoolGradient}, "average": {ops.AvgPool2D, AvgPool, AvgPoolGradient}} {
		build := func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return pool.build(in[0], w.KernelHeight, w.Stride, w.Pad)
		}
		n := len(onCPU(t, 0, nil, build, of(x, shapeOf(w)...)).out)
		dy := noise[T](5, n)
		want := onCPU(t, 1, dy, build, of(x, shapeOf(w)...))
		same(t, name, Bound{}, compute(t, n, x)(pool.out(number[T](), w)), want.out)
		inputs := [][]T{x, dy}
		if name == "average" {
			inputs = inputs[1:]
		}
		same(t, "gradient of "+name, Bound{}, compute(t, len(x), inputs...)(pool.gradient(number[T](), w)), want.gradients[0])
	}
}
