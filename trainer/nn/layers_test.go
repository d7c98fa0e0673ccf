package nn_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/modeltest"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// over builds a model on images: a convolution, the layer under test, and a
// loss.
func over(layer func(b *nn.Builder, x *nn.Node) *nn.Node) func(b *nn.Builder) {
	return func(b *nn.Builder) {
		x := b.Conv("below", b.Input("x", 1, 4, 4), 2, nn.Window{Size: 2})
		b.CrossEntropy(b.Dense("out", b.Flatten(layer(b, x)), 3), b.Indices("y", b.Batch()))
	}
}

// along builds a model on sequences of three rows: a linear layer, the layer
// under test, and a loss that depends on every output.
func along(layer func(b *nn.Builder, x *nn.Node) *nn.Node) func(b *nn.Builder) {
	return func(b *nn.Builder) {
		x := b.Dense("below", b.InputOf("x", 3*b.Batch(), 2), 3)
		y := layer(b, x)
		b.MSE(y, b.InputOf("y", y.Shape()...))
	}
}

// layers lists models with one layer under test each, and the names of that
// layer's variables.
var layers = map[string]struct {
	build     func(b *nn.Builder)
	variables string // without the variables of the layers before and after it
	lookups   []string
}{
	"conv": {build: over(func(b *nn.Builder, x *nn.Node) *nn.Node {
		return b.Conv("c", x, 3, nn.Window{Size: 3, Stride: 2, Pad: 1})
	}), variables: "c.w(3, 2, 3, 3) c.b(3)"},
	"conv without bias": {build: over(func(b *nn.Builder, x *nn.Node) *nn.Node {
		return b.Conv("c", x, 2, nn.Window{Size: 1}, nn.NoBias())
	}), variables: "c.w(2, 2, 1, 1)"},
	"conv of an oblong window": {build: over(func(b *nn.Builder, x *nn.Node) *nn.Node {
		return b.Conv("c", x, 4, nn.Oblong(nn.Window{Size: 1}, nn.Window{Size: 2, Pad: 1, Dilation: 2}), nn.Groups(2))
	}), variables: "c.w(4, 1, 1, 2) c.b(4)"},
	"oblong pool": {build: over(func(b *nn.Builder, x *nn.Node) *nn.Node {
		return b.AvgPool(x, nn.Oblong(nn.Window{Size: 3, Stride: 1, Pad: 1}, nn.Window{Size: 1}))
	})},
	"global pool": {build: over(func(b *nn.Builder, x *nn.Node) *nn.Node { return b.GlobalAvgPool(x) })},
	"smoothed labels": {build: func(b *nn.Builder) {
		b.SmoothCrossEntropy(b.Dense("out", b.Input("x", 3), 4), b.Indices("y", b.Batch()), 0.1)
	}},
	"max pool": {build: over(func(b *nn.Builder, x *nn.Node) *nn.Node { return b.MaxPool(x, nn.Window{Size: 2, Stride: 1}) })},
	"avg pool": {build: over(func(b *nn.Builder, x *nn.Node) *nn.Node { return b.AvgPool(x, nn.Window{Size: 2, Pad: 1}) })},
	"batch norm": {build: over(func(b *nn.Builder, x *nn.Node) *nn.Node { return b.BatchNorm("n", x) }),
		variables: "n.scale(2) n.bias(2) n.mean(2) n.variance(2)"},
	"dropout": {build: over(func(b *nn.Builder, x *nn.Node) *nn.Node { return b.Dropout("d", x, 0.4) })},
	"residual": {build: over(func(b *nn.Builder, x *nn.Node) *nn.Node {
		return b.Residual("r", x, func(x *nn.Node) *nn.Node { return b.Tanh(b.Conv("c", x, 2, nn.Window{Size: 3, Pad: 1})) })
	}), variables: "c.w(2, 2, 3, 3) c.b(2)"},
	"embedding": {build: func(b *nn.Builder) {
		words := b.Embedding("words", 5, 2, 0.5)
		b.CrossEntropy(b.Dense("out", b.Lookup(words, "word", b.Batch()), 3), b.Indices("y", b.Batch()))
	}, lookups: []string{"word"}},
	"lstm": {build: along(func(b *nn.Builder, x *nn.Node) *nn.Node { return b.LSTM("l", x, nn.Recurrent{Units: 2, Steps: 3}).Out }),
		variables: "l.input(3, 8) l.state(2, 8) l.bias(8)"},
	"lstm with projection": {build: along(func(b *nn.Builder, x *nn.Node) *nn.Node {
		return b.LSTM("l", x, nn.Recurrent{Units: 3, Steps: 3, Width: 2, First: b.Input("first", 2), FirstCell: b.Input("cell", 3)}).Out
	}), variables: "l.input(3, 12) l.state(2, 12) l.bias(12) l.projection(3, 2)"},
	"gru": {build: along(func(b *nn.Builder, x *nn.Node) *nn.Node {
		return b.GRU("g", x, nn.Recurrent{Units: 2, Steps: 3, First: b.Input("first", 2)}).Last
	}), variables: "g.input(3, 6) g.state(2, 6) g.bias(6)"},
	"attention": {build: along(func(b *nn.Builder, x *nn.Node) *nn.Node {
		return b.Attention(b.Dense("query", b.InputOf("q", 2*b.Batch(), 2), 3), x, b.Input("mask", 3))
	}), variables: "query.w(2, 3) query.b(3)"},
}

// Every element of the gradients of the layer, of the layer before it and of
// looked-up rows must agree with central differences.
func TestGradientsOfLayers(t *testing.T) {
	for name, c := range layers {
		t.Run(name, func(t *testing.T) {
			modeltest.Gradients(t, nn.BuildOf(tensor.Float64, 1, c.build), 3, values, c.lookups...)
		})
	}
}

// Each layer must add variables with the shapes that follow from its input,
// and use its variables and inputs.
func TestVariablesOfLayers(t *testing.T) {
	for name, c := range layers {
		m, err := nn.Build(1, c.build)(gorgonia.NewGraph(), 3)
		if err != nil {
			t.Fatal(err)
		}
		all := slices.Clone(m.Variables)
		for _, s := range m.States {
			all = append(all, s.Variable)
		}
		for _, n := range append(slices.Clone(m.Inputs), all...) {
			if !m.Loss.Graph().To(n.ID()).Next() {
				t.Errorf("%s: nothing uses %s", name, n.Name())
			}
		}
		var got []string
		for _, v := range all {
			if !strings.HasPrefix(v.Name(), "below.") && !strings.HasPrefix(v.Name(), "out.") {
				got = append(got, v.Name()+shapeOf(v))
			}
		}
		if s := strings.Join(got, " "); s != c.variables {
			t.Errorf("%s: variables are %s, want %s", name, s, c.variables)
		}
	}
}

// If the input's shape does not match, the error must name the layer and the
// shapes.
func TestLayerErrors(t *testing.T) {
	for want, build := range map[string]func(b *nn.Builder){
		`layer "c": x is (4, 3), want (batch, channels, height, width)`:                                          func(b *nn.Builder) { b.Conv("c", b.Input("x", 3), 2, nn.Window{Size: 2}) },
		`layer "c": its sizes are (2, 0), want at least 1`:                                                       func(b *nn.Builder) { b.Conv("c", b.Input("x", 1, 4, 4), 2, nn.Window{}) },
		`layer "c": convolution: x is "x" (4, 1, 4, 4), which with a pad of 0 is smaller than the kernel, 5 x 5`: func(b *nn.Builder) { b.Conv("c", b.Input("x", 1, 4, 4), 2, nn.Window{Size: 5}) },
		`MaxPool: max pool: `:     func(b *nn.Builder) { b.MaxPool(b.Input("x", 1, 4, 4), nn.Window{Size: 5}) },
		`AvgPool: average pool: `: func(b *nn.Builder) { b.AvgPool(b.Input("x", 4), nn.Window{Size: 2}) },
		`loss: binary cross entropy: x is (4) and y (3), want one shape`:                  func(b *nn.Builder) { b.BinaryCrossEntropy(b.Input("x"), b.InputOf("y", 3)) },
		`products of rows: x is (4, 2) and y (4, 3), want one shape`:                      func(b *nn.Builder) { b.Node(nn.RowDots(b.Input("x", 2), b.Input("y", 3))) },
		`products of rows: x is (4), want (rows, width)`:                                  func(b *nn.Builder) { b.Node(nn.RowDots(b.Input("x"), b.Input("y"))) },
		`Flatten: flatten: x is "x" (4), want at least two axes`:                          func(b *nn.Builder) { b.Flatten(b.Input("x")) },
		`layer "n": x is (4), want (batch, features) or (batch, channels, height, width)`: func(b *nn.Builder) { b.BatchNorm("n", b.Input("x")) },
		`layer "n": x is nil`:   func(b *nn.Builder) { b.BatchNorm("n", nil) },
		`layer "n": batch norm`: func(b *nn.Builder) { b.BatchNormEpsilon("n", b.Input("x", 2), 0) },
		`layer "d": dropout`:    func(b *nn.Builder) { b.Dropout("d", b.Input("x", 2), 1) },
		`layer "r": residual: x is (4, 2) and y (4, 3), want one shape`: func(b *nn.Builder) {
			b.Residual("r", b.Input("x", 2), func(x *nn.Node) *nn.Node { return b.Dense("d", x, 3) })
		},
		`layer "r": residual: an input is nil`: func(b *nn.Builder) {
			b.Residual("r", b.Input("x", 2), func(*nn.Node) *nn.Node { return nil })
		},
		`MaxPool: max pool: kernel 2 x 2, stride -1, pad 0: want at least 1, 1 and 0`: func(b *nn.Builder) { b.MaxPool(b.Input("x", 1, 4, 4), nn.Window{Size: 2, Stride: -1}) },
		`MaxPool: max pool: kernel 0 x 0, stride 0`:                                   func(b *nn.Builder) { b.MaxPool(b.Input("x", 1, 4, 4), nn.Window{}) },
		`layer "c": convolution: kernel 2 x 2, stride 1, pad -1`:                      func(b *nn.Builder) { b.Conv("c", b.Input("x", 1, 4, 4), 2, nn.Window{Size: 2, Pad: -1}) },
		`layer "c": 2 groups, want a divisor of its 1 channels and of its 2 filters`: func(b *nn.Builder) {
			b.Conv("c", b.Input("x", 1, 4, 4), 2, nn.Window{Size: 2}, nn.Groups(2))
		},
		`layer "d": 2 groups: a Dense has none`:           func(b *nn.Builder) { b.Dense("d", b.Input("x", 2), 2, nn.Groups(2)) },
		`MaxPool: its window is dilated`:                  func(b *nn.Builder) { b.MaxPool(b.Input("x", 1, 4, 4), nn.Window{Size: 2, Dilation: 2}) },
		`GlobalAvgPool: global average pool: x is "x" (4`: func(b *nn.Builder) { b.GlobalAvgPool(b.Input("x", 3)) },
		`loss: cross entropy: a fraction of 1 of`: func(b *nn.Builder) {
			b.SmoothCrossEntropy(b.Dense("out", b.Input("x", 3), 4), b.Indices("y", b.Batch()), 1)
		},
		`variable "l.input": its sizes`:                             func(b *nn.Builder) { b.LSTM("l", b.Input("x", 2), nn.Recurrent{Units: 1 << 61, Steps: 2}) },
		`embedding "e": its rows start from -NaN to NaN`:            func(b *nn.Builder) { b.Embedding("e", 5, 2, math.NaN()) },
		`lookup "w": the table is nil`:                              func(b *nn.Builder) { b.Lookup(nil, "w", 3) },
		`lookup "w": embedding "e": look up 3 of 0 rows of width 2`: func(b *nn.Builder) { b.Lookup(b.Embedding("e", 0, 2, 1), "w", 3) },
		`the name "x" is used twice`: func(b *nn.Builder) {
			b.Input("x", 2)
			b.Lookup(b.Embedding("x", 5, 2, 1), "w", 3)
		},
		`layer "l": x is (4, 2, 2), want (batch*steps, features)`: func(b *nn.Builder) { b.LSTM("l", b.Input("x", 2, 2), nn.Recurrent{Units: 2, Steps: 2}) },
		`layer "l": its sizes are (2, 0, 2), want at least 1`:     func(b *nn.Builder) { b.LSTM("l", b.Input("x", 2), nn.Recurrent{Units: 2}) },
		`layer "l": lstm of 3 steps`:                              func(b *nn.Builder) { b.LSTM("l", b.Input("x", 2), nn.Recurrent{Units: 2, Steps: 3}) },
		`layer "l": lstm of 2 steps that keeps 1: give both First and FirstCell`: func(b *nn.Builder) {
			b.LSTM("l", b.Input("x", 2), nn.Recurrent{Units: 2, Steps: 2, First: b.InputOf("f", 2, 2)})
		},
		`layer "g": gru of 2 steps: `: func(b *nn.Builder) {
			b.GRU("g", b.Input("x", 2), nn.Recurrent{Units: 2, Steps: 2, First: b.InputOf("f", 2, 3)})
		},
		`layer "g": a GRU has no cells and no projection`: func(b *nn.Builder) { b.GRU("g", b.Input("x", 2), nn.Recurrent{Units: 2, Steps: 2, Width: 3}) },
		`Attention: attention: the query is "q" (4, 2), the memory "m" (4, 3)`: func(b *nn.Builder) {
			b.Attention(b.Input("q", 2), b.Input("m", 3), b.InputOf("mask", 2, 2))
		},
	} {
		if _, err := nn.Build(1, build)(gorgonia.NewGraph(), 4); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A residual block must compute x plus its branch; here the branch is x.
func TestResidualAdds(t *testing.T) {
	g := gorgonia.NewGraph()
	m, err := nn.Build(1, func(b *nn.Builder) {
		x := b.Input("x", 2)
		y := b.Residual("r", x, func(x *nn.Node) *nn.Node { return x })
		b.Fetch("y", y)
		b.MSE(b.Dense("out", y, 1), b.Input("label", 1))
	})(g, 1)
	if err != nil {
		t.Fatal(err)
	}
	var y gorgonia.Value
	gorgonia.Read(m.Fetches["y"], &y)
	for i, x := range []*tensor.Dense{nn.Batch([]float32{3, -4}, 2), nn.Batch([]float32{0}, 1)} {
		if err := gorgonia.Let(m.Inputs[i], x); err != nil {
			t.Fatal(err)
		}
	}
	if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
		t.Fatal(err)
	}
	if got := y.Data().([]float32); got[0] != 6 || got[1] != -8 {
		t.Errorf("3, -4 become %v", got)
	}
}

// The running averages of a batch norm must be updated with its own batch mean
// and variance.
func TestBatchNormStates(t *testing.T) {
	m, err := nn.Build(1, layers["batch norm"].build)(gorgonia.NewGraph(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.States) != 2 || m.States[0].Variable.Name() != "n.mean" || m.States[1].Variable.Name() != "n.variance" {
		t.Fatalf("states are %v", m.States)
	}
	for i, first := range []float32{0, 1} {
		s := m.States[i]
		if s.Momentum != 0.9 || s.Variable.Value().Data().([]float32)[0] != first || s.Batch == nil {
			t.Errorf("%s: momentum %v, first values %v", s.Variable.Name(), s.Momentum, s.Variable.Value())
		}
	}
	if m.States[0].Batch == m.States[1].Batch {
		t.Error("mean and variance follow the same value")
	}
}

// The numbers 1 and -1 have a variance of 1, to which epsilon adds 3.
func TestBatchNormEpsilon(t *testing.T) {
	g := gorgonia.NewGraph()
	m, err := nn.Build(1, func(b *nn.Builder) {
		y := b.BatchNormEpsilon("n", b.Input("x", 1), 3)
		b.Fetch("y", y)
		b.MSE(y, b.Input("label", 1))
	})(g, 2)
	if err != nil {
		t.Fatal(err)
	}
	var y gorgonia.Value
	gorgonia.Read(m.Fetches["y"], &y)
	for _, x := range m.Inputs {
		if err := gorgonia.Let(x, nn.Batch([]float32{1, -1}, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
		t.Fatal(err)
	}
	if got := y.Data().([]float32); got[0] != 0.5 || got[1] != -0.5 {
		t.Errorf("1, -1 become %v", got)
	}
}
