package ops

import (
	"math"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func oneInput(f func(x *gorgonia.Node) (*gorgonia.Node, error)) model {
	return func(in []*gorgonia.Node) (*gorgonia.Node, error) { return f(in[0]) }
}

var someShapes = [][]int{{1}, {5}, {1, 1}, {1, 4}, {3, 1}, {4, 7}, {2, 3, 5}, {1, 2, 3, 3}}

func TestActivations(t *testing.T) {
	for name, c := range map[string]struct {
		build func(x *gorgonia.Node) (*gorgonia.Node, error)
		naive func(x float64) float64
	}{
		"relu":    {Relu, func(x float64) float64 { return math.Max(x, 0) }},
		"sigmoid": {Sigmoid, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }},
		"tanh":    {Tanh, math.Tanh},
	} {
		for _, s := range someShapes {
			x := numbers(1, s)
			want := make([]float64, len(x[0]))
			for i, v := range x[0] {
				want[i] = c.naive(v)
			}
			near(t, name, checkGradient(t, [][]int{s}, x, 1, training, oneInput(c.build)), want, 1e-14)
		}
	}
}

func TestReluAtItsBounds(t *testing.T) {
	x := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 5e-324}
	f := feed(t, [][]int{{6}}, [][]float64{x}, oneInput(Relu))
	gradient, err := gorgonia.Grad(f.loss, f.in[0])
	must(t, err)
	f.want(gradient[0])
	f.run(t, training)
	y, dx := f.get(f.out), f.get(gradient[0])
	if !slices.Equal(y[:4], []float64{0, 0, math.Inf(1), 0}) || !math.IsNaN(y[4]) || y[5] != x[5] {
		t.Errorf("relu of %v is %v", x, y)
	}
	if dx[0] != 0 || dx[1] != 0 || dx[2] == 0 || dx[3] != 0 || dx[5] == 0 {
		t.Errorf("gradient %v", dx)
	}
}

func TestSoftmaxes(t *testing.T) {
	for _, s := range someShapes {
		x, n := numbers(2, s), s[len(s)-1]
		want, logs := make([]float64, len(x[0])), make([]float64, len(x[0]))
		for i := range x[0] {
			sum := 0.0
			for _, v := range x[0][i/n*n : i/n*n+n] {
				sum += math.Exp(v)
			}
			want[i] = math.Exp(x[0][i]) / sum
			logs[i] = math.Log(want[i])
		}
		near(t, "softmax", checkGradient(t, [][]int{s}, x, 1, training, oneInput(Softmax)), want, 1e-13)
		near(t, "log softmax", checkGradient(t, [][]int{s}, x, 1, training, oneInput(LogSoftmax)), logs, 1e-12)
	}
}

// Rows after the first must be computed as precisely as the first.
func TestSoftmaxesOfHugeNumbers(t *testing.T) {
	x := []float64{0, 1, 2, 1e4, 1e4, -1e4, -1e30, 1e30, 1e30}
	for name, c := range map[string]struct {
		build func(x *gorgonia.Node) (*gorgonia.Node, error)
		want  []float64
	}{
		"softmax":     {Softmax, []float64{0.5, 0.5, 0, 0, 0.5, 0.5}},
		"log softmax": {LogSoftmax, []float64{-math.Ln2, -math.Ln2, -1e4 - 1e4 - math.Ln2, -2e30, -math.Ln2, -math.Ln2}},
	} {
		f := feed(t, [][]int{{3, 3}}, [][]float64{x}, oneInput(c.build))
		f.run(t, training)
		near(t, name, f.get(f.out)[3:], c.want, 1e-12)
	}
}

func TestFlatten(t *testing.T) {
	for _, s := range [][]int{{1, 1}, {3, 4}, {2, 3, 5}, {1, 2, 3, 2}} {
		x := numbers(3, s)
		near(t, "flatten", checkGradient(t, [][]int{s}, x, 1, training, oneInput(Flatten)), x[0], 0)
		f := feed(t, [][]int{s}, x, oneInput(Flatten))
		if got := f.out.Shape(); !slices.Equal(got, []int{s[0], len(x[0]) / s[0]}) {
			t.Errorf("%v became %v", s, got)
		}
	}
}

func TestLinear(t *testing.T) {
	for _, s := range [][3]int{{1, 1, 1}, {1, 3, 2}, {4, 1, 3}, {5, 7, 3}, {3, 2, 1}} {
		batch, in, out := s[0], s[1], s[2]
		shapes := [][]int{{batch, in}, {in, out}, {out}}
		values := numbers(4, shapes...)
		for _, bias := range []int{0, 1} {
			want := make([]float64, batch*out)
			for i := range want {
				want[i] = values[2][i%out] * float64(bias)
				for k := range in {
					want[i] += values[0][i/out*in+k] * values[1][k*out+i%out]
				}
			}
			got := checkGradient(t, shapes[:2+bias], values[:2+bias], 2+bias, training, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
				return Linear(in[0], in[1], append(in, nil)[2])
			})
			near(t, "linear", got, want, 1e-13)
		}
	}
}

func TestAddBias(t *testing.T) {
	for _, s := range [][]int{{1, 1}, {4, 3}, {1, 5}, {2, 3, 4}, {3, 2, 1, 5}} {
		shapes := [][]int{s, {s[1]}}
		values := numbers(5, shapes...)
		space := len(values[0]) / s[0] / s[1]
		want := slices.Clone(values[0])
		for i := range want {
			want[i] += values[1][i/space%s[1]]
		}
		near(t, "add bias", checkGradient(t, shapes, values, 2, training, twoInputs(AddBias)), want, 0)
	}
}

// A transposed result of Gorgonia must be read in the right order.
func TestTransposedInput(t *testing.T) {
	shapes := [][]int{{3, 4}, {3, 2}}
	values := numbers(6, shapes...)
	got := checkGradient(t, shapes, values, 2, training, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
		x, err := gorgonia.Transpose(in[0], 1, 0)
		if err != nil {
			return nil, err
		}
		return Linear(x, in[1], nil)
	})
	want := make([]float64, 8)
	for i := range want {
		for k := range 3 {
			want[i] += values[0][k*4+i/2] * values[1][k*2+i%2]
		}
	}
	near(t, "product", got, want, 1e-13)
}

// A tensor with transposed strides, or a slice of a tensor, must be read in
// the right order.
func TestStridedInput(t *testing.T) {
	g := gorgonia.NewGraph()
	y, err := Tanh(gorgonia.NewTensor(g, tensor.Float64, 3, gorgonia.WithShape(4, 3, 2), gorgonia.WithName("x")))
	must(t, err)
	turned := tensor.New(tensor.WithShape(2, 3, 4), tensor.WithBacking(tensor.Range(tensor.Float64, 0, 24)))
	must(t, turned.T(2, 1, 0))
	whole := tensor.New(tensor.WithShape(4, 3, 5), tensor.WithBacking(tensor.Range(tensor.Float64, 0, 60)))
	part, err := whole.Slice(nil, nil, gorgonia.S(1, 3))
	must(t, err)
	for name, c := range map[string]struct {
		x  tensor.Tensor
		at func(i, j, k int) int
	}{
		"turned": {turned, func(i, j, k int) int { return k*12 + j*4 + i }},
		"part":   {part, func(i, j, k int) int { return i*15 + j*5 + k + 1 }},
	} {
		v, err := y.Op().Do(c.x)
		must(t, err)
		var want []float64
		for i := range 24 {
			want = append(want, math.Tanh(float64(c.at(i/6, i/2%3, i%2))))
		}
		near(t, name, get(v), want, 0)
	}
}

func TestLayerErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	node := func(name string, s ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(s), gorgonia.WithShape(s...), gorgonia.WithName(name))
	}
	x, w, b := node("x", 4, 3), node("w", 3, 2), node("b", 2)
	wide := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(3, 2), gorgonia.WithName("wide"))
	for _, c := range []struct {
		build func() (*gorgonia.Node, error)
		want  string
	}{
		{func() (*gorgonia.Node, error) { return Linear(w, x, nil) }, `linear: x is "w" (3, 2) and w "x" (4, 3), want (batch, in) and (in, out)`},
		{func() (*gorgonia.Node, error) { return Linear(x, w, node("c", 3)) }, `linear: w is "w" (3, 2), so b, which is "c" (3), must be (2)`},
		{func() (*gorgonia.Node, error) { return Linear(x, wide, nil) }, `"x" (4, 3) is float32 and "wide" (3, 2) is float64`},
		{func() (*gorgonia.Node, error) { return Linear(x, nil, b) }, "nil"},
		{func() (*gorgonia.Node, error) { return AddBias(x, b) }, `add bias: x is "x" (4, 3), so "b" (2) must be (3)`},
		{func() (*gorgonia.Node, error) { return AddBias(b, b) }, "want (batch, channels)"},
		{func() (*gorgonia.Node, error) { return Flatten(b) }, "at least two axes"},
		{func() (*gorgonia.Node, error) { return Relu(nil) }, "nil"},
		{func() (*gorgonia.Node, error) { return Softmax(nil) }, "nil"},
	} {
		if _, err := c.build(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
