package ops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// model builds a result from input nodes.
type model func(in []*gorgonia.Node) (*gorgonia.Node, error)

var training = operation.Call{Step: 3, VirtualWorker: 1, VirtualWorkers: 4, Seed: 7, Train: true}

// fed is a graph with values for its inputs. Gorgonia's tape machine runs it.
type fed struct {
	graph     *gorgonia.ExprGraph
	in        gorgonia.Nodes
	values    [][]float64
	out, loss *gorgonia.Node
	machine   gorgonia.VM
	read      map[*gorgonia.Node]*gorgonia.Value
}

// feed builds m on float64 inputs, and a loss that is a weighted sum of all
// elements of its result, with different weights.
func feed(t *testing.T, shapes [][]int, values [][]float64, m model) *fed {
	t.Helper()
	f := &fed{graph: gorgonia.NewGraph(), values: values, read: map[*gorgonia.Node]*gorgonia.Value{}}
	for i, s := range shapes {
		n := gorgonia.NewTensor(f.graph, tensor.Float64, len(s), gorgonia.WithShape(s...), gorgonia.WithName(fmt.Sprintf("in%d", i)))
		must(t, gorgonia.Let(n, tensor.New(tensor.WithShape(s...), tensor.WithBacking(values[i]))))
		f.in = append(f.in, n)
	}
	var err error
	f.out, err = m(f.in)
	must(t, err)
	f.loss, err = weigh(f.out)
	must(t, err)
	f.want(f.out)
	f.want(f.loss)
	return f
}

func (f *fed) want(n *gorgonia.Node) {
	f.read[n] = new(gorgonia.Value)
	gorgonia.Read(n, f.read[n])
}

func (f *fed) run(t *testing.T, call operation.Call) {
	t.Helper()
	if f.machine == nil {
		f.machine = gorgonia.NewTapeMachine(f.graph)
	}
	for _, n := range f.graph.AllNodes() {
		if op, ok := n.Op().(operation.Contextual); ok {
			op.Prepare(call)
		}
	}
	must(t, f.machine.RunAll())
	f.machine.Reset()
}

func (f *fed) get(n *gorgonia.Node) []float64 { return slices.Clone(data[float64](*f.read[n])) }

// weigh returns the sum of the elements of x, each multiplied by a different
// weight.
func weigh(x *gorgonia.Node) (*gorgonia.Node, error) {
	n := memory.Elements(x.Shape())
	weight := func(i int) float64 { return math.Sin(float64(3*i+1)) + 0.3 }
	o := &op{what: "weigh", out: operand{dtype: x.Dtype()}}
	o.run = func(out gorgonia.Value, in []gorgonia.Value) error {
		sum := 0.0
		for i, v := range data[float64](in[0]) {
			sum += v * weight(i)
		}
		data[float64](out)[0] = sum
		return nil
	}
	o.diff = func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		d := &op{what: "gradient of weigh", out: operand{dtype: x.Dtype(), shape: x.Shape()}}
		d.run = func(out gorgonia.Value, in []gorgonia.Value) error {
			for i := range n {
				data[float64](out)[i] = data[float64](in[1])[0] * weight(i)
			}
			return nil
		}
		return one(d.apply(in[0], dy))
	}
	return o.apply(x)
}

// checkGradient compares the gradients of the first n inputs with finite
// differences. It returns the values of the result.
func checkGradient(t *testing.T, shapes [][]int, values [][]float64, n int, call operation.Call, m model) []float64 {
	t.Helper()
	plain, graded := feed(t, shapes, values, m), feed(t, shapes, values, m)
	gradients, err := gorgonia.Grad(graded.loss, graded.in[:n]...)
	must(t, err)
	for _, g := range gradients {
		graded.want(g)
	}
	graded.run(t, call)
	for i, g := range gradients {
		if !slices.Equal(g.Shape(), graded.in[i].Shape()) {
			t.Fatalf("gradient %d has shape %v, want %v", i, g.Shape(), graded.in[i].Shape())
		}
		got := graded.get(g)
		for k := range values[i] {
			want := difference(t, plain, &values[i][k], call)
			if math.IsNaN(got[k]) || math.Abs(got[k]-want) > 2e-6*(1+math.Abs(want)) {
				t.Fatalf("gradient of input %d, element %d: %v, finite differences say %v", i, k, got[k], want)
			}
		}
	}
	return graded.get(graded.out)
}

// difference returns the derivative of f's loss with respect to *x, by finite
// differences.
func difference(t *testing.T, f *fed, x *float64, call operation.Call) float64 {
	t.Helper()
	at := *x
	h := 1e-5 * max(1, math.Abs(at))
	defer func() { *x = at }()
	*x = at + h
	f.run(t, call)
	up := f.get(f.loss)[0]
	*x = at - h
	f.run(t, call)
	return (up - f.get(f.loss)[0]) / (2 * h)
}

// numbers returns random values for inputs of the given shapes.
func numbers(seed uint64, shapes ...[]int) [][]float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	var all [][]float64
	for _, s := range shapes {
		v := make([]float64, memory.Elements(s))
		for i := range v {
			v[i] = r.NormFloat64()
		}
		all = append(all, v)
	}
	return all
}

// near fails the test if two lists differ by more than the tolerance.
func near(t *testing.T, what string, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.IsNaN(got[i]) || math.Abs(got[i]-want[i]) > tolerance*(1+math.Abs(want[i])) {
			t.Fatalf("%s: value %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
