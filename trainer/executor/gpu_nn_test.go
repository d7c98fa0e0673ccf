package executor

import (
	"testing"

	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// layers lists the operations of package nn that have GPU kernels.
var layers = []exhibit{
	unaryOf("relu", false, false, ops.Relu),
	unaryOf("sigmoid", false, false, ops.Sigmoid),
	unaryOf("tanh", false, false, ops.Tanh),
	unaryOf("softmax", false, false, ops.Softmax),
	unaryOf("log softmax", false, false, ops.LogSoftmax),
	{"linear", [][]int{{3, 5}, {5, 4}, {4}}, false, false, func(v nodes) *gorgonia.Node { return must(ops.Linear(v[0], v[1], v[2])) }},
	{"add bias", [][]int{{2, 3, 4, 5}, {3}}, false, false, func(v nodes) *gorgonia.Node { return must(ops.AddBias(v[0], v[1])) }},
	{"convolution", [][]int{{2, 3, 7, 6}, {4, 3, 3, 3}}, false, false, func(v nodes) *gorgonia.Node { return must(ops.Conv2D(v[0], v[1], 2, 1)) }},
	{"max pool", [][]int{{2, 3, 7, 6}}, false, false, func(v nodes) *gorgonia.Node { return must(ops.MaxPool2D(v[0], 3, 2, 1)) }},
	{"average pool", [][]int{{2, 3, 7, 6}}, false, false, func(v nodes) *gorgonia.Node { return must(ops.AvgPool2D(v[0], 3, 2, 1)) }},
	{"slice", [][]int{{3, 6, 4}}, false, false, func(v nodes) *gorgonia.Node { return must(ops.Slice(v[0], 1, 2, 5)) }},
	{"flatten", [][]int{{3, 2, 4}}, false, false, func(v nodes) *gorgonia.Node { return must(ops.Flatten(v[0])) }},
	{"concat", [][]int{{3, 2, 4}, {3, 5, 4}}, false, false, func(v nodes) *gorgonia.Node { return must(ops.Concat(1, v[0], v[1])) }},
	{"dropout", [][]int{{9, 31}}, false, false, func(v nodes) *gorgonia.Node { return must(ops.Dropout(v[0], 0.4, "d")) }},
	{"batch norm", [][]int{{4, 3, 5, 2}, {3}, {3}}, false, false, func(v nodes) *gorgonia.Node {
		g := v[0].Graph()
		still := func(name string) *gorgonia.Node {
			value := tensor.New(tensor.WithShape(3), tensor.Of(v[0].Dtype()))
			return gorgonia.NewVector(g, v[0].Dtype(), gorgonia.WithShape(3), gorgonia.WithName(name), gorgonia.WithValue(value))
		}
		n, err := ops.BatchNorm(v[0], v[1], v[2], still("mean"), still("variance"), 0.9, 1e-5, "n")
		return must(n.Out, err)
	}},
	{"cross entropy", [][]int{{5, 4}, {5, 4}}, true, true, func(v nodes) *gorgonia.Node { return must(ops.CrossEntropy(v[0], v[1])) }},
}

// Every layer and its gradient give the same on a GPU as on the CPU, and the
// GPU computes them with kernels.
func TestGPUComputesLayersOfPackageNN(t *testing.T) {
	d, eager := testGPU(t), eagerGPU(t)
	for _, e := range layers {
		t.Run(e.name, func(t *testing.T) {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				if left := onGPU(t, d, eager, e.build, dt, e.positive); len(left) > 0 {
					t.Errorf("%v: on the CPU: %v", dt, left)
				}
			}
		})
	}
}

// A GPU program computes a convolution that the kernels do not support on the
// CPU, and everything else on the GPU.
func TestCPUComputesUnsupportedConvolutions(t *testing.T) {
	even := ops.Window{Stride: 1, Pad: 1}
	for name, c := range map[string]struct {
		down, across ops.Window
		groups, want int
	}{
		"as ever":       {even, even, 1, 0},
		"oblong":        {even, ops.Window{Stride: 2, Pad: 1}, 1, 3},
		"dilated":       {ops.Window{Stride: 1, Dilation: 2}, ops.Window{Stride: 1, Dilation: 2}, 1, 3},
		"of two groups": {even, even, 2, 3},
	} {
		b := exhibit{name, [][]int{{2, 4, 7, 6}, {4, 4 / c.groups, 3, 3}}, false, false, func(v nodes) *gorgonia.Node {
			return must(ops.Conv(v[0], v[1], c.down, c.across, c.groups))
		}}
		if left := onGPU(t, testGPU(t), eagerGPU(t), b.build, tensor.Float32, false); len(left) != c.want {
			t.Errorf("%s: on the CPU: %v, want %d operations", name, left, c.want)
		}
	}
}
