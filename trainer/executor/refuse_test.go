package executor

import (
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestCompileRefusesOperations(t *testing.T) {
	for _, c := range []struct {
		want string
		f    func(x *gorgonia.Node) *gorgonia.Node
	}{
		{"dropoutOp is refused", func(x *gorgonia.Node) *gorgonia.Node { return must(gorgonia.Dropout(x, 0.5)) }},
		{"maxPoolOp is refused", func(x *gorgonia.Node) *gorgonia.Node {
			return must(gorgonia.MaxPool2D(x, tensor.Shape{2, 2}, []int{0, 0}, []int{1, 1}))
		}},
		{"avgPoolOp holds pointers", func(x *gorgonia.Node) *gorgonia.Node {
			return must(gorgonia.AveragePool2D(x, tensor.Shape{2, 2}, []int{0, 0}, []int{1, 1}))
		}},
		{"BatchNormOp is refused", func(x *gorgonia.Node) *gorgonia.Node {
			scale, bias := leaf(x.Graph(), x.Dtype(), "s", x.Shape()...), leaf(x.Graph(), x.Dtype(), "t", x.Shape()...)
			for i, v := range values(nodes{scale, bias}, 1, true) {
				if err := gorgonia.Let(nodes{scale, bias}[i], v); err != nil {
					panic(err)
				}
			}
			n, _, _, _, err := gorgonia.BatchNorm(x, scale, bias, 0.9, 1e-5)
			return must(n, err)
		}},
		{"randomOp is refused", func(x *gorgonia.Node) *gorgonia.Node {
			return must(gorgonia.Add(x, gorgonia.UniformRandomNode(x.Graph(), x.Dtype(), 0, 1, x.Shape()...)))
		}},
		{`"z" (2, 2, 4, 4) has no value`, func(x *gorgonia.Node) *gorgonia.Node {
			return must(gorgonia.Add(x, leaf(x.Graph(), x.Dtype(), "z", x.Shape()...)))
		}},
		{"computes its gradient wrongly", func(x *gorgonia.Node) *gorgonia.Node { return must(gorgonia.Log2(x)) }},
		{"computes its gradient wrongly: use Inverse of Sqrt", func(x *gorgonia.Node) *gorgonia.Node { return must(gorgonia.InverseSqrt(x)) }},
		{"computes its gradient wrongly: reshape the vectors", func(x *gorgonia.Node) *gorgonia.Node {
			flat := must(gorgonia.Reshape(x, tensor.Shape{64}))
			return must(gorgonia.OuterProd(flat, flat))
		}},
		{"GlobalAveragePool(%0) (2, 2, 1, 1): gorgonia computes its gradient wrongly: use nn.AvgPool2D", func(x *gorgonia.Node) *gorgonia.Node { return must(gorgonia.GlobalAveragePool2D(x)) }},
		{"computes its gradient wrongly: transpose the value", func(x *gorgonia.Node) *gorgonia.Node {
			index := gorgonia.NewVector(x.Graph(), tensor.Int, gorgonia.WithShape(2), gorgonia.WithName("index"), gorgonia.WithValue(tensor.New(tensor.WithBacking([]int{1, 1}))))
			return must(gorgonia.ByIndices(x, index, 1))
		}},
		{"holds pointers or functions", func(x *gorgonia.Node) *gorgonia.Node {
			return must(gorgonia.ApplyOp(secretive{state: new(int)}, x))
		}},
	} {
		g := gorgonia.NewGraph()
		x := leaf(g, tensor.Float32, "x", 2, 2, 4, 4)
		plan := Plan{Inputs: nodes{x}, Loss: must(gorgonia.Sum(c.f(x)))}
		if strings.Contains(c.want, "gradient") {
			plan.Differentiate = nodes{x}
		}
		_, err := Compile(g, plan)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

type secretive struct {
	gorgonia.Iop
	state *int
}

func TestCompileRefusesPlans(t *testing.T) {
	g := gorgonia.NewGraph()
	x, w := leaf(g, tensor.Float32, "x", 3, 2), leaf(g, tensor.Float32, "w", 2, 2)
	s := leaf(g, tensor.Float32, "s")
	y := must(gorgonia.Mul(x, w))
	loss := must(gorgonia.Sum(y))
	value := valueOf(tensor.Float32, tensor.Shape{2, 2}, false, func() float64 { return 1 })
	other := gorgonia.NewGraph()
	far := must(gorgonia.Square(leaf(other, tensor.Float32, "far", 2)))
	for want, p := range map[string]Plan{
		"neither a loss nor":    {},
		"2 fixed leaves and 1":  {Fixed: nodes{x, w}, FixedValues: []gorgonia.Value{value}, Loss: loss},
		"want a scalar":         {Inputs: nodes{x, w}, Loss: y},
		"no loss":               {Inputs: nodes{x, w}, Differentiate: nodes{w}, Outputs: nodes{y}},
		"is computed":           {Inputs: nodes{y}, Loss: loss},
		"listed twice":          {Inputs: nodes{x, x}, Loss: loss},
		"neither an input nor":  {Inputs: nodes{x}, Loss: loss, Differentiate: nodes{w}},
		"another graph":         {Inputs: nodes{x, w}, Loss: loss, Outputs: nodes{far}},
		"give it the shape (1)": {Inputs: nodes{x, w, s}, Loss: loss},
		"want the shape of the leaf, in row-major order": {Inputs: nodes{w}, Fixed: nodes{x}, FixedValues: []gorgonia.Value{value}, Loss: loss},
		"is nil or of another type":                      {Inputs: nodes{x}, Fixed: nodes{w}, FixedValues: []gorgonia.Value{nil}, Loss: loss},
		`"w" (2, 2) has no value`:                        {Inputs: nodes{x}, Loss: loss},
	} {
		if _, err := Compile(g, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	idle := leaf(g, tensor.Float32, "idle", 2)
	if _, err := Compile(g, Plan{Inputs: nodes{x, w, idle}, Loss: loss, Differentiate: nodes{w, idle}}); err == nil || !strings.Contains(err.Error(), `"idle" (2) gets no gradient`) {
		t.Errorf("a variable without gradient: %v", err)
	}
	p := Plan{Inputs: nodes{x}, Fixed: nodes{w}, FixedValues: []gorgonia.Value{value}, Loss: loss, Differentiate: nodes{w}}
	if _, err := Compile(g, p); err != nil {
		t.Fatal(err)
	}
	if _, err := Compile(g, p); err == nil || !strings.Contains(err.Error(), "has a gradient already") {
		t.Errorf("compiled twice: %v", err)
	}
}
