package rewrite

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/replica"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// chosen returns a function that looks up indices along an axis with
// gorgonia.ByIndices.
func chosen(axis int, index ...int) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.ByIndices(x, gorgonia.NewVector(x.Graph(), tensor.Int, gorgonia.WithName("index"), gorgonia.WithShape(len(index)),
			gorgonia.WithValue(tensor.New(tensor.WithBacking(index)))), axis)
	}
}

// along returns a function that applies operation f along axes.
func along(f func(*gorgonia.Node, ...int) (*gorgonia.Node, error), axes ...int) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) { return f(x, axes...) }
}

// Gorgonia accepts some arguments that have no meaning, such as an axis that
// does not exist. plx returns an error for them, before the training or in its
// first step.
func TestWrongArgumentsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		want  string
		shape []int
		f     build
	}{
		"At, column":          {"there is no element [0 5]", []int{3, 4}, along(gorgonia.At, 0, 5)},
		"At, negative":        {"there is no element [1 -1]", []int{3, 4}, along(gorgonia.At, 1, -1)},
		"At, one coordinate":  {"there is no element [1]", []int{3, 4}, along(gorgonia.At, 1)},
		"Slice":               {"the axis has 3 elements", []int{3, 4}, func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Slice(x, gorgonia.S(1, 5)) }},
		"Sum, an axis twice":  {"an axis is named twice", []int{3, 4}, along(gorgonia.Sum, 1, 1)},
		"Mean, an axis twice": {"an axis is named twice", []int{3, 4}, along(gorgonia.Mean, 1, 1)},
		"ByIndices, row":      {"index 1 is 3, want a row from 0 to 2", []int{3, 4}, chosen(0, 0, 3)},
		"ByIndices, column":   {"index 1 is 4, want a row from 0 to 3", []int{3, 4}, chosen(1, 0, 4)},
		"ByIndices, negative": {"index 0 is -1", []int{3, 4}, chosen(1, -1, 0)},
		"SoftMax":             {"there is no axis 2", []int{3, 4}, along(gorgonia.SoftMax, 2)},
		"SoftMax, negative":   {"there is no axis -2", []int{3, 4}, along(gorgonia.SoftMax, -2)},
		"SoftMax of a column": {"name the axis", []int{3, 1}, along(gorgonia.SoftMax)},
		"Sparsemax":           {"transpose the value", []int{3, 4}, along(gorgonia.Sparsemax, 0)},
		"Concat":              {"there is no axis -1", []int{3, 4}, func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Concat(-1, x, x) }},
		"LogSumExp":           {"LogSumExp adds the largest element before", []int{3}, func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.LogSumExp(x, 0) }},
		"Tensordot": {"reshape the operands and use Mul", []int{3, 4}, func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return gorgonia.Tensordot([]int{0, 1}, []int{0, 1}, x, x)
		}},
		"BinaryXent": {"as BinaryXent makes it do", []int{3}, func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return gorgonia.BinaryXent(gorgonia.Must(gorgonia.Sigmoid(x)), x)
		}},
		"AveragePool1D":        {"AveragePool1D makes a max pool", []int{2, 3, 1, 6}, sequencePool(gorgonia.AveragePool1D)},
		"MaxPool1D":            {"MaxPool2D with four pads", []int{2, 3, 1, 6}, sequencePool(gorgonia.MaxPool1D)},
		"Norm of p 1":          {"gorgonia's ^ of a value of shape (3): Norm of p 1 takes no absolute values", []int{3, 4}, norm(1)},
		"Norm of p 3":          {"Norm of p 3 takes no absolute values: give it the Abs", []int{3, 4}, norm(3)},
		"Norm of p 0":          {"Norm of p 0 is infinite", []int{3, 4}, norm(0)},
		"DiagFlat":             {"its type is wrong", []int{3}, gorgonia.DiagFlat},
		"YOLOv3":               {"compute the boxes outside the graph", []int{1, 18, 2, 2}, boxes},
		"a value of no rows":   {`"x" of shape (0, 4) is empty`, []int{0, 4}, gorgonia.Tanh},
		"ConvType to float32":  {"Cannot do conversion", []int{3, 4}, squeezed},
		"the sum of no column": {"is empty", []int{4, 0}, along(gorgonia.Sum, 1)},
	} {
		if err := computed(t, c.shape, c.f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// sequencePool pools pairs of elements.
func sequencePool(f func(x *gorgonia.Node, kernel, pad, stride int) (*gorgonia.Node, error)) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) { return f(x, 2, 0, 2) }
}

func norm(p int) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Norm(x, 1, p) }
}

func boxes(x *gorgonia.Node) (*gorgonia.Node, error) {
	return gorgonia.YOLOv3(x, []float32{1, 2, 3, 4, 5, 6}, []int{0, 1, 2}, 8, 1, 0.5)
}

// computed builds function f of an input of that shape, compiles it, runs it
// once and returns the error.
func computed(t *testing.T, shape []int, f build) error {
	t.Helper()
	x := gorgonia.NewTensor(gorgonia.NewGraph(), tensor.Float64, len(shape), gorgonia.WithName("x"), gorgonia.WithShape(shape...))
	y, err := f(x)
	must(t, err)
	made, err := Model(replica.Model{Inputs: nodes{x}, Loss: y}, true)
	if err != nil {
		return err
	}
	p, err := executor.Compile(made.Loss.Graph(), executor.Plan{Inputs: made.Inputs, Outputs: nodes{made.Loss}})
	if err != nil {
		return err
	}
	_, err = p.Run(training, nil, nil)
	return err
}

// Of several largest elements, the first one gets the gradient.
func TestMaxOfEqualElements(t *testing.T) {
	w := twin{"Max", [][]int{{2, 300}}, func(v nodes) (*gorgonia.Node, error) { return gorgonia.Max(v[0], 1) }, nil, false, false}
	p := newTrial(t, w)
	for i := range p.in[0].data {
		p.in[0].data[i] = 7
	}
	_, err := p.program.Run(training, p.gradients, nil)
	must(t, err)
	for i, g := range memory.View[float64](p.gradients[0]) {
		want := 0.0
		if i%300 == 0 {
			want = p.weights[i/300]
		}
		if g != want {
			t.Errorf("element %d: gradient %v, want %v", i, g, want)
		}
	}
}
