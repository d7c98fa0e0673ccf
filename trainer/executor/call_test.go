package executor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/nn/ops"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// failing is an operation that counts its calls. It returns an error or panics
// if the test sets *how.
type failing struct {
	gorgonia.Iop
	how   *string
	calls *[]operation.Call
}

func (f failing) Run(out gorgonia.Value, inputs ...gorgonia.Value) error {
	switch *f.how {
	case "error":
		return errors.New("it rains")
	case "panic":
		panic("it pours")
	}
	copy(out.(*tensor.Dense).Float32s(), inputs[0].(*tensor.Dense).Float32s())
	return nil
}

func (f failing) Prepare(c operation.Call) { *f.calls = append(*f.calls, c) }
func (f failing) String() string           { return "umbrella" }

func TestRunPassesCallToOperationsAndReturnsTheirErrors(t *testing.T) {
	how, calls := "", []operation.Call(nil)
	g := gorgonia.NewGraph()
	x := leaf(g, tensor.Float32, "x", 2, 2)
	y := must(gorgonia.ApplyOp(failing{how: &how, calls: &calls}, x))
	z := must(gorgonia.ApplyOp(failing{how: &how, calls: &calls}, y))
	p, err := Compile(g, Plan{Inputs: nodes{x}, Outputs: nodes{z}})
	check(t, err)
	copy(p.Input(0).Data().([]float32), []float32{1, 2, 3, 4})
	c := operation.Call{Step: 7, VirtualWorker: 2, VirtualWorkers: 4, Seed: 9, Train: true}
	if n := testing.AllocsPerRun(10, func() { calls = calls[:0]; _, err = p.Run(c, nil, nil) }); n != 0 || err != nil {
		t.Errorf("a run allocates %v times, error %v", n, err)
	}
	if got := floatsOf(t, p.Output(0)); !slices.Equal(got, []float64{1, 2, 3, 4}) {
		t.Errorf("got %v", got)
	}
	if len(calls) == 0 || calls[0] != c {
		t.Errorf("prepared with %v", calls)
	}
	for _, how = range []string{"error", "panic"} {
		_, err := p.Run(c, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "umbrella") || !strings.Contains(err.Error(), "it ") || !strings.Contains(err.Error(), "(2, 2)") {
			t.Errorf("%s: %v", how, err)
		}
	}
	how = ""
	if _, err := p.Run(c, nil, nil); err != nil {
		t.Errorf("after an error: %v", err)
	}
}

// Operations without a plx kernel return the same values as in Gorgonia.
func TestOperationsWithoutKernelRunAsInGorgonia(t *testing.T) {
	b := func(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
		a, c := leaf(g, dt, "a", 3, 4), leaf(g, dt, "c", 1, 2, 4, 4)
		d := must(gorgonia.Tensordot([]int{0}, []int{0}, a, a))
		bools := must(gorgonia.Gt(a, must(gorgonia.Square(a)), false))
		pool := must(gorgonia.GlobalAveragePool2D(c))
		return model{g, nil, nodes{a, c}, nil, nodes{d, must(gorgonia.Sparsemax(a)), pool, must(gorgonia.Square(d)), bools}}
	}
	m := b(gorgonia.NewGraph(), tensor.Float64)
	vs := values(m.variables, 1, true)
	p, err := Compile(m.g, Plan{Fixed: m.variables, FixedValues: vs, Outputs: m.outputs})
	check(t, err)
	n := &naive{map[*gorgonia.Node]gorgonia.Value{m.variables[0]: vs[0], m.variables[1]: vs[1]}, map[*gorgonia.Node]gorgonia.Value{}}
	for range 2 {
		_, err := p.Run(operation.Call{}, nil, nil)
		check(t, err)
		for i, o := range m.outputs {
			if got, want := fmt.Sprint(p.Output(i).Data()), fmt.Sprint(n.value(t, o).Data()); got != want {
				t.Errorf("%v: %v, want %v", o, got, want)
			}
		}
	}
}

// An input may be a tensor of integers: here the indices of rows to look up.
func TestInputsMayBeIntegers(t *testing.T) {
	g := gorgonia.NewGraph()
	table := leaf(g, tensor.Float64, "table", 5, 2)
	index := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(3), gorgonia.WithName("index"))
	rows := must(ops.Rows(table, index))
	loss := must(gorgonia.Sum(must(gorgonia.Square(rows))))
	value := values(nodes{table}, 1, false)[0]
	p, err := Compile(g, Plan{Inputs: nodes{index}, Fixed: nodes{table}, FixedValues: []gorgonia.Value{value}, Loss: loss, Differentiate: nodes{table}, Outputs: nodes{index}})
	check(t, err)
	copy(p.Input(0).Ints(), []int{4, 0, 4})
	gradient := memory.Aligned(5 * 2 * 8)
	_, err = p.Run(operation.Call{}, [][]byte{gradient}, nil)
	check(t, err)
	x, got := floatsOf(t, value), memory.View[float64](gradient)
	for row, times := range []float64{1, 0, 0, 0, 2} {
		for i := range 2 {
			if at := 2*row + i; got[at] != 2*times*x[at] {
				t.Errorf("row %d: gradient %v, want %v", row, got[at], 2*times*x[at])
			}
		}
	}
	if fmt.Sprint(p.Output(0).Data()) != "[4 0 4]" {
		t.Errorf("the indices came out as %v", p.Output(0).Data())
	}
}
