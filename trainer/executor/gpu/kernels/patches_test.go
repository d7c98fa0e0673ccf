package kernels_test

import (
	"fmt"
	"testing"

	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestPatches(t *testing.T) {
	one := [2]int{1, 1}
	for _, p := range []Patches{
		{Batch: 1, Channels: 1, Height: 3, Width: 3, Kernel: [2]int{2, 2}, Stride: one, Dilation: one},
		{Batch: 2, Channels: 3, Height: 7, Width: 5, Kernel: [2]int{3, 2}, Pad: [2]int{1, 1}, Stride: [2]int{2, 1}, Dilation: one},
		{Batch: 3, Channels: 2, Height: 9, Width: 11, Kernel: [2]int{2, 3}, Pad: [2]int{2, 0}, Stride: [2]int{1, 3}, Dilation: [2]int{2, 2}},
	} {
		bothTypes(t, fmt.Sprintf("%+v", p), func(t *testing.T) { checkPatches[float32](t, p) }, func(t *testing.T) { checkPatches[float64](t, p) })
	}
}

func checkPatches[T float](t *testing.T, p Patches) {
	x := of(noise[T](1, p.Batch*p.Channels*p.Height*p.Width), p.Batch, p.Channels, p.Height, p.Width)
	build := func(in gorgonia.Nodes) (*gorgonia.Node, error) {
		return gorgonia.Im2Col(in[0], tensor.Shape(p.Kernel[:]), tensor.Shape(p.Pad[:]), tensor.Shape(p.Stride[:]), tensor.Shape(p.Dilation[:]))
	}
	n := len(onCPU(t, 0, nil, build, x).out)
	dy := noise[T](2, n)
	want := onCPU(t, 1, dy, build, x)
	same(t, "im2col", Bound{}, compute(t, n, x.data)(Im2Col(number[T](), p)), want.out)
	same(t, "col2im", Bound{}, compute(t, len(x.data), dy)(Col2Im(number[T](), p)), want.gradients[0])
}
