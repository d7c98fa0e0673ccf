package nn_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/modeltest"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func digits(b *nn.Builder) {
	x, y := b.Input("x", 784), b.Labels("y", 10)
	b.CrossEntropy(b.Dense("out", b.Tanh(b.Dense("hidden", x, 100)), 10), y)
}

// The model of the package documentation must have these variables in this
// order. Their initial values must depend only on the seed and their names.
func TestVariablesDependOnSeedAndName(t *testing.T) {
	m, err := nn.Build(7, digits)(gorgonia.NewGraph(), 4)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range m.Variables {
		got = append(got, v.Name()+shapeOf(v))
	}
	if s := strings.Join(got, " "); s != "hidden.w(784, 100) hidden.b(100) out.w(100, 10) out.b(10)" {
		t.Errorf("variables are %s", s)
	}
	want := trainer.GlorotUniform(7, "out.w")(tensor.Float32, 100, 10).([]float32)
	if first := m.Variables[2].Value().Data().([]float32); first[0] != want[0] || first[999] != want[999] {
		t.Errorf("out.w begins with %v, want %v", first[0], want[0])
	}
}

// Options must change names and initial values of variables.
func TestOptions(t *testing.T) {
	m, err := nn.Build(1, func(b *nn.Builder) {
		h := b.Dense("a", b.Input("x", 2), 3, nn.Names("W", "B"), nn.First(nn.Ones()), nn.FirstBias(nn.Uniform(2, 2)))
		b.MSE(b.Dense("c", h, 2, nn.NoBias()), b.Input("y", 2))
	})(gorgonia.NewGraph(), 4)
	if err != nil {
		t.Fatal(err)
	}
	w, bias := m.Variables[0], m.Variables[1]
	if len(m.Variables) != 3 || w.Name() != "W" || bias.Name() != "B" || m.Variables[2].Name() != "c.w" {
		t.Errorf("variables are %v", m.Variables)
	}
	if x, y := w.Value().Data().([]float32)[5], bias.Value().Data().([]float32)[2]; x != 1 || y != 2 {
		t.Errorf("weights begin with %v, biases with %v, want 1 and 2", x, y)
	}
}

func shapeOf(n *gorgonia.Node) string { return fmt.Sprint(n.Shape()) }

// values fills float inputs with varying numbers, and other inputs with small
// integers.
func values(n *gorgonia.Node, i int, into *tensor.Dense) {
	switch x := into.Data().(type) {
	case []int64:
		for k := range x {
			x[k] = int64((5*k + 2) % 3)
		}
	case []float64:
		for k := range x {
			if n.Name() == "mask" {
				x[k] = 1
				continue
			}
			x[k] = math.Cos(float64(3*i+k*k)) + 0.2
		}
	}
}

// Every element of every gradient of each layer must agree with central
// differences. A Dense or Conv layer before the tested one makes its input
// depend on variables.
func TestGradients(t *testing.T) {
	for name, c := range map[string]struct {
		build   func(b *nn.Builder)
		lookups []string
	}{
		"dense": {build: func(b *nn.Builder) {
			h := b.Tanh(b.Dense("hidden", b.Input("x", 3), 4))
			b.CrossEntropy(b.Dense("out", h, 3), b.Labels("y", 3))
		}},
		"activations": {build: func(b *nn.Builder) {
			h := b.Sigmoid(b.Dense("a", b.Input("x", 3), 4))
			b.CrossEntropy(b.Dense("c", b.Relu(b.Dense("b", h, 4, nn.NoBias())), 3), b.Indices("y", b.Batch()))
		}},
		"sum": {build: func(b *nn.Builder) {
			logits := b.Dense("out", b.Input("x", 3), 3)
			b.Loss(b.Node(nn.SumCrossEntropy(logits, b.Indices("y", b.Batch()))), trainer.Sum)
		}},
		"binary": {build: func(b *nn.Builder) {
			words := b.Embedding("words", 5, 2, 0.5)
			x, y := b.Lookup(words, "word", 2*b.Batch()), b.Dense("below", b.InputOf("x", 2*b.Batch(), 3), 2)
			b.BinaryCrossEntropy(b.Node(nn.RowDots(x, y)), b.InputOf("label", 2*b.Batch()))
		}, lookups: []string{"word"}},
		"mse": {build: func(b *nn.Builder) { b.MSE(b.Dense("out", b.Input("x", 3), 2), b.Input("y", 2)) }},
	} {
		t.Run(name, func(t *testing.T) {
			modeltest.Gradients(t, nn.BuildOf(tensor.Float64, 1, c.build), 3, values, c.lookups...)
		})
	}
}

// A frozen variable must keep its value, and not be reported as a variable
// that the loss does not depend on.
func TestFrozen(t *testing.T) {
	m, err := nn.Build(1, func(b *nn.Builder) {
		scale := b.Frozen("scale", nn.Ones(), 3)
		h := b.Node(gorgonia.BroadcastHadamardProd(b.Input("x", 3), scale, nil, []byte{0}))
		b.MSE(b.Dense("out", h, 2), b.Input("y", 2))
	})(gorgonia.NewGraph(), 4)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Frozen) != 1 || m.Frozen[0].Name() != "scale" || len(m.Variables) != 2 {
		t.Errorf("frozen %v, variables %v", m.Frozen, m.Variables)
	}
}

// Each build function must return an error that contains the given text, with
// the layer and the shapes.
func TestBuildErrors(t *testing.T) {
	for want, build := range map[string]func(b *nn.Builder){
		`layer "out": x is (4, 2, 3, 3), want (rows, features): use Flatten`: func(b *nn.Builder) {
			b.CrossEntropy(b.Dense("out", b.Input("x", 2, 3, 3), 2), b.Labels("y", 2))
		},
		`the name "out" is used twice`: func(b *nn.Builder) {
			b.CrossEntropy(b.Dense("out", b.Dense("out", b.Input("x", 2), 2), 2), b.Labels("y", 2))
		},
		`the name "x" is used twice`: func(b *nn.Builder) { b.MSE(b.Input("x", 2), b.Input("x", 2)) },
		`the name "W" is used twice`: func(b *nn.Builder) {
			h := b.Dense("a", b.Input("x", 2), 2, nn.Names("W", "b"))
			b.MSE(b.Dense("c", h, 2, nn.Names("W", "d")), b.Input("y", 2))
		},
		`variable "d.w": its sizes are (2, 4611686018427387904), want at most`: func(b *nn.Builder) { b.Dense("d", b.Input("x", 2), 1<<62) },
		`input "x": its sizes are (4, 4294967296, 4294967296), want at most`:   func(b *nn.Builder) { b.Input("x", 1<<32, 1<<32) },
		`has no name`:       func(b *nn.Builder) { b.Input("") },
		`has no loss`:       func(b *nn.Builder) { b.Dense("out", b.Input("x", 2), 2) },
		`has two losses`:    func(b *nn.Builder) { x := b.Input("x", 2); b.MSE(x, x); b.MSE(x, x) },
		`the loss is nil`:   func(b *nn.Builder) { b.Loss(nil, trainer.Mean) },
		`metric "m" is nil`: func(b *nn.Builder) { b.Metric("m", nil) },
		`two values for fetch "f"`: func(b *nn.Builder) {
			x := b.Input("x", 2)
			b.Fetch("f", x)
			b.Fetch("f", x)
		},
		`loss: mean squared error: x is (4, 3) and y (4, 2), want one shape`: func(b *nn.Builder) {
			b.MSE(b.Dense("out", b.Input("x", 2), 3), b.Input("y", 2))
		},
		`loss: cross entropy: `: func(b *nn.Builder) {
			b.CrossEntropy(b.Dense("out", b.Input("x", 2), 3), b.Labels("y", 2))
		},
		`layer "d": its sizes are (0), want at least 1`: func(b *nn.Builder) { b.Node(gorgonia.Exp(b.Dense("d", b.Input("x", 2), 0))) },
		`input "x": its sizes are (4, -1)`:              func(b *nn.Builder) { b.Dense("d", b.Input("x", -1), 2).Shape() },
		`layer "d": x is nil`:                           func(b *nn.Builder) { b.Dense("d", nil, 2) },
		`Tanh: `:                                        func(b *nn.Builder) { b.Tanh(nil) },
		`variable "v": its sizes are (2, 0)`:            func(b *nn.Builder) { b.Variable("v", nn.Zeros(), 2, 0) },
	} {
		if _, err := nn.Build(1, build)(gorgonia.NewGraph(), 4); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := nn.Build(1, nil)(gorgonia.NewGraph(), 4); err == nil || !strings.Contains(err.Error(), "the function is nil") {
		t.Errorf("no function: %v", err)
	}
	if _, err := nn.BuildOf(tensor.Int, 1, digits)(gorgonia.NewGraph(), 4); err == nil || !strings.Contains(err.Error(), "the model's type is int") {
		t.Errorf("a model of int: %v", err)
	}
}

// If the builder has no error, a panic comes from the program and must not be
// recovered.
func TestBuildDoesNotRecoverPanicsOfTheProgram(t *testing.T) {
	defer func() {
		if recover() != "mine" {
			t.Error("the panic is lost")
		}
	}()
	_, err := nn.Build(1, func(b *nn.Builder) { panic("mine") })(gorgonia.NewGraph(), 4)
	t.Errorf("it returned %v", err)
}

func TestBatch(t *testing.T) {
	for want, x := range map[string]*tensor.Dense{
		"(6)":       nn.Batch([]int64{1, 2, 3, 4, 5, 6}),
		"(2, 3)":    nn.Batch(make([]float32, 6), 3),
		"(1, 2, 3)": nn.Batch(make([]float64, 6), 2, 3),
	} {
		if fmt.Sprint(x.Shape()) != want {
			t.Errorf("its shape is %v, want %s", x.Shape(), want)
		}
	}
	defer func() {
		if m, _ := recover().(string); m != "nn: 5 values are no whole number of rows of (3)" {
			t.Errorf("panic %q", m)
		}
	}()
	nn.Batch(make([]float32, 5), 3)
}
