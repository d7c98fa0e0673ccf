package nn_test

import (
	"math"
	"testing"

	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/nn"
	"github.com/plx-run/plx/trainer/nn/ops"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Each function of package nn must add the operation of package ops with the
// same name and the same inputs.
func TestFunctionsAddTheOperationsOfOps(t *testing.T) {
	g := gorgonia.NewGraph()
	node := func(name string, shape ...int) *nn.Node {
		return gorgonia.NewTensor(g, tensor.Float64, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	}
	x, w, v, image, kernel := node("x", 4, 4), node("w", 4, 4), node("v", 4), node("image", 4, 2, 4, 4), node("kernel", 2, 2, 2, 2)
	type unary = func(x *nn.Node) (*nn.Node, error)
	type binary = func(x, y *nn.Node) (*nn.Node, error)
	all := map[string][2]func() (*nn.Node, error){
		"linear":    {func() (*nn.Node, error) { return nn.Linear(x, w, v) }, func() (*nn.Node, error) { return ops.Linear(x, w, v) }},
		"attention": {func() (*nn.Node, error) { return nn.Attention(x, w, node("m", 4, 1)) }, func() (*nn.Node, error) { return ops.Attention(x, w, node("m", 4, 1)) }},
		"concat":    {func() (*nn.Node, error) { return nn.Concat(1, x, w) }, func() (*nn.Node, error) { return ops.Concat(1, x, w) }},
		"slice":     {func() (*nn.Node, error) { return nn.Slice(x, 1, 2, 3) }, func() (*nn.Node, error) { return ops.Slice(x, 1, 2, 3) }},
		"conv":      {func() (*nn.Node, error) { return nn.Conv2D(image, kernel, 2, 1) }, func() (*nn.Node, error) { return ops.Conv2D(image, kernel, 2, 1) }},
		"max pool":  {func() (*nn.Node, error) { return nn.MaxPool2D(image, 3, 2, 1) }, func() (*nn.Node, error) { return ops.MaxPool2D(image, 3, 2, 1) }},
		"avg pool":  {func() (*nn.Node, error) { return nn.AvgPool2D(image, 3, 2, 1) }, func() (*nn.Node, error) { return ops.AvgPool2D(image, 3, 2, 1) }},
	}
	for name, f := range map[string][2]unary{
		"relu": {nn.Relu, ops.Relu}, "sigmoid": {nn.Sigmoid, ops.Sigmoid}, "tanh": {nn.Tanh, ops.Tanh}, "softmax": {nn.Softmax, ops.Softmax},
		"log softmax": {nn.LogSoftmax, ops.LogSoftmax}, "flatten": {nn.Flatten, ops.Flatten},
	} {
		all[name] = [2]func() (*nn.Node, error){func() (*nn.Node, error) { return f[0](image) }, func() (*nn.Node, error) { return f[1](image) }}
	}
	for name, f := range map[string][2]binary{
		"add bias": {nn.AddBias, ops.AddBias}, "rows": {nn.Rows, ops.Rows}, "cross entropy": {nn.CrossEntropy, ops.CrossEntropy},
		"sum": {nn.SumCrossEntropy, ops.SumCrossEntropy}, "accuracy": {nn.Accuracy, ops.Accuracy},
	} {
		all[name] = [2]func() (*nn.Node, error){func() (*nn.Node, error) { return f[0](x, v) }, func() (*nn.Node, error) { return f[1](x, v) }}
	}
	seen := map[string]string{}
	for name, f := range all {
		ours, err := f[0]()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want, err := f[1]()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		what := want.Op().String()
		if got := ours.Op().String(); got != what || !ours.Shape().Eq(want.Shape()) {
			t.Errorf("%s is %s %v, want %s %v", name, got, ours.Shape(), what, want.Shape())
		}
		if other, ok := seen[what]; ok {
			t.Errorf("%s and %s have one description, %s: nothing tells them apart", name, other, what)
		}
		seen[what] = name
	}
}

// The binary cross entropy must be the mean of -log(p) or -log(1-p), where p
// is the logistic function of the logit, and stay finite for large logits. The
// logits are dot products of rows.
func TestBinaryCrossEntropy(t *testing.T) {
	const rows, width = 5, 2
	g := gorgonia.NewGraph()
	m, err := nn.BuildOf(tensor.Float64, 1, func(b *nn.Builder) {
		b.BinaryCrossEntropy(b.Node(nn.RowDots(b.Input("x", width), b.Input("y", width))), b.Input("label"))
	})(g, rows)
	if err != nil {
		t.Fatal(err)
	}
	p, err := executor.Compile(g, executor.Plan{Inputs: m.Inputs, Loss: m.Loss})
	if err != nil {
		t.Fatal(err)
	}
	x, y, labels := p.Input(0).Float64s(), p.Input(1).Float64s(), p.Input(2).Float64s()
	copy(x, []float64{1, 2, -3, 0.5, 0, 0, 40, 1, 1000, 0})
	copy(y, []float64{0.5, -1, -1, 0.25, 3, 3, 1, -40, -3, 1})
	copy(labels, []float64{1, 0, 1, 0, 1})
	got, err := p.Run(operation.Call{}, nil, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	want := 3000.0 // the loss of the last row, for which p is 0 in float64
	for i := range rows - 1 {
		likely := 1 / (1 + math.Exp(-x[2*i]*y[2*i]-x[2*i+1]*y[2*i+1]))
		if labels[i] == 0 {
			likely = 1 - likely
		}
		want -= math.Log(likely)
	}
	if want /= rows; math.Abs(got-want) > 1e-12*want {
		t.Errorf("loss is %v, want %v", got, want)
	}
}
