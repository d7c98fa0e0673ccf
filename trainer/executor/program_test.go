package executor

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The last layer's gradient is announced first, each once, and not before the
// last instruction that reads its variable.
func TestReadyOrder(t *testing.T) {
	s := compile(t, mlp(4, 6, 5, 4, 3), tensor.Float32, 1, false)
	var order []int
	_, err := s.program.Run(Call{}, s.gradients, func(i int) { order = append(order, i) })
	check(t, err)
	if !slices.Equal(order, []int{2, 1, 0}) {
		t.Errorf("announced %v, want the last layer first", order)
	}
	first := slices.IndexFunc(s.program.instructions, func(in instruction) bool { return len(in.ready) > 0 })
	if n := len(s.program.instructions); first > n*3/4 {
		t.Errorf("the first gradient is announced after instruction %d of %d", first, n)
	}
}

// Whoever is told that a gradient is ready may overwrite its variable and the
// gradient at once.
func TestVariablesMayBeOverwrittenWhenReady(t *testing.T) {
	for name, b := range map[string]build{"mlp": mlp(4, 6, 5, 4, 3), "conv": smallConv, "reads variables": readsVariables, "shared gradient": sharedGradient} {
		t.Run(name, func(t *testing.T) {
			want := compile(t, b, tensor.Float64, 1, false).run(t)
			s := compile(t, b, tensor.Float64, 1, false)
			got := results{gradients: make([][]float64, len(s.gradients))}
			var err error
			got.loss, err = s.program.Run(Call{}, s.gradients, func(i int) {
				if got.gradients[i] != nil {
					t.Errorf("gradient %d is announced twice", i)
				}
				got.gradients[i] = float64s(tensor.Float64, s.gradients[i])
				fill(view[float64](s.gradients[i]), 1e30)
				b, _ := raw(s.values[i])
				fill(view[float64](b), 1e30)
			})
			check(t, err)
			for i := range s.model.outputs {
				got.outputs = append(got.outputs, floatsOf(t, s.program.Output(i)))
			}
			same(t, got, want, 0)
		})
	}
}

// readsVariables has outputs that are variables, and one that only an output
// needs.
func readsVariables(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
	m := mlp(4, 6, 5, 3)(g, dt)
	m.outputs = append(m.outputs, m.variables[0], m.inputs[0], must(gorgonia.Sum(must(gorgonia.Square(m.variables[1])))),
		must(gorgonia.Reshape(m.variables[0], tensor.Shape{5, 6})), m.loss)
	return m
}

// sharedGradient has one gradient for two variables, and one that is an input.
func sharedGradient(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
	x := leaf(g, dt, "x", 3, 2)
	a, b, c := leaf(g, dt, "a", 3, 2), leaf(g, dt, "b", 3, 2), leaf(g, dt, "c", 3, 2)
	squares := must(gorgonia.Square(must(gorgonia.Add(a, b))))
	loss := must(gorgonia.Sum(must(gorgonia.Add(squares, must(gorgonia.HadamardProd(x, c))))))
	return model{g, nodes{x}, nodes{a, b, c}, loss, nodes{squares}}
}

// What is read after a run is what was computed, whatever was computed later.
func TestOutputsAreNotOverwritten(t *testing.T) {
	every := func(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
		m := mlp(4, 6, 5, 4, 3)(g, dt)
		for _, n := range g.AllNodes() {
			if n.Op() != nil && !isConstant(n) {
				m.outputs = append(m.outputs, n)
			}
		}
		return m
	}
	same(t, compile(t, every, tensor.Float64, 1, false).run(t), naively(t, every, tensor.Float64, 1, false), 1e-12)
}

func TestEvaluation(t *testing.T) {
	b := func(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
		m := mlp(4, 6, 5, 3)(g, dt)
		m.outputs = append(m.outputs, m.loss)
		m.loss = nil
		return m
	}
	s := compile(t, b, tensor.Float32, 1, false)
	same(t, s.run(t), naively(t, b, tensor.Float32, 1, false), 1e-5)
	if n := len(s.program.Describe().Instructions); n > 15 {
		t.Errorf("an evaluation takes %d instructions: gradients are computed", n)
	}
}

// Equal vertices are computed once, vertices that only hash alike are not.
func TestMerging(t *testing.T) {
	b := func(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
		a := leaf(g, dt, "a", 3, 4)
		tall := leaf(g, dt, "b", 300, 2)
		soft := must(gorgonia.SoftMax(a, 1))
		scaled := must(gorgonia.Square(a)) // keeps the two apart for Gorgonia
		logarithm := must(gorgonia.LogSoftMax(must(gorgonia.Sqrt(scaled)), 1))
		return model{g, nil, nodes{a, tall}, nil, nodes{soft, logarithm}}
	}
	same(t, compile(t, b, tensor.Float64, 1, true).run(t), naively(t, b, tensor.Float64, 1, true), 1e-12)

	forged := newBuilder(Plan{})
	g := gorgonia.NewGraph()
	a := leaf(g, tensor.Float64, "a", 3, 4)
	forged.roles[a] = operation{kind: kindInput}
	in, err := forged.vertex(a)
	check(t, err)
	var vs []*vertex
	for _, op := range []operation{{kind: kindSoftMax, axes: []int{1}}, {kind: kindSoftMax, axes: []int{1}, log: true}, {kind: kindSoftMax, axes: []int{1}}, {kind: kindSoftMax, axes: []int{0}}} {
		vs = append(vs, forged.merge(forged.make(a, op, []*vertex{in})))
	}
	if vs[0] == vs[1] || vs[0] != vs[2] || vs[0] == vs[3] {
		t.Errorf("merged: softmax with its logarithm %t, with itself %t, with another axis %t", vs[0] == vs[1], vs[0] == vs[2], vs[0] == vs[3])
	}
}

// Four lanes run at the same time and share their variables.
func TestLanes(t *testing.T) {
	const lanes = 4
	want := compile(t, smallConv, tensor.Float32, 1, false).run(t)
	shared := compile(t, smallConv, tensor.Float32, 1, false)
	sessions := []*session{shared}
	for range lanes - 1 {
		m := smallConv(gorgonia.NewGraph(), tensor.Float32)
		s := &session{model: m, values: shared.values}
		var err error
		s.program, err = Compile(m.g, Plan{Inputs: m.inputs, Fixed: m.variables, FixedValues: shared.values, Loss: m.loss, Differentiate: m.variables, Outputs: m.outputs})
		check(t, err)
		for i := range m.inputs {
			check(t, tensor.Copy(s.program.Input(i), shared.program.Input(i)))
		}
		for _, g := range shared.gradients {
			s.gradients = append(s.gradients, aligned(len(g)))
		}
		sessions = append(sessions, s)
	}
	all := make([]results, lanes)
	var wg sync.WaitGroup
	for i, s := range sessions {
		wg.Go(func() {
			for range 10 {
				all[i] = s.run(t)
			}
		})
	}
	wg.Wait()
	for _, got := range all {
		same(t, got, want, 0)
	}
}

func TestTraceAndDescribe(t *testing.T) {
	s := compile(t, smallConv, tensor.Float32, 1, false)
	d := s.program.Describe()
	var names []string
	s.program.Trace = func(name string, start, end time.Time) {
		if end.Before(start) {
			t.Errorf("%s ends before it starts", name)
		}
		names = append(names, name)
	}
	s.run(t)
	if len(names) != len(d.Instructions) {
		t.Fatalf("%d instructions traced, %d described", len(names), len(d.Instructions))
	}
	announced := 0
	computed := map[int]bool{}
	for i, in := range d.Instructions {
		if in.Name != names[i] {
			t.Errorf("instruction %d is called %q and %q", i, in.Name, names[i])
		}
		announced += len(in.Ready)
		for _, from := range d.Vertices[in.Vertex].Inputs {
			v := d.Vertices[from]
			root := d.Vertices[v.SharesOf]
			if (root.Memory == "arena" || strings.HasPrefix(root.Memory, "gradient")) && v.Operation != "alias" && !computed[from] {
				t.Errorf("%s reads %s, which is not computed yet", in.Name, v.Name)
			}
		}
		computed[in.Vertex] = true
	}
	if announced != 3 || d.Arena == 0 {
		t.Errorf("%d gradients announced, arena of %d bytes", announced, d.Arena)
	}
}

// Memory that is alive at the same time must not overlap, checked without the
// planner's own words: every value is poisoned as soon as it is dead.
func TestMemoryPlan(t *testing.T) {
	for name, b := range map[string]build{"mlp": mlp(4, 6, 5, 4, 3), "conv": smallConv} {
		s := compile(t, b, tensor.Float32, 1, false)
		order := s.program.instructions
		for i, in := range order {
			for _, other := range order[:i] {
				a, b := in.vertex.root, other.vertex.root
				if a == b || !a.planned || !b.planned || b.last < a.position {
					continue
				}
				if a.offset < b.offset+b.length() && b.offset < a.offset+a.length() {
					t.Errorf("%s: %s overwrites %s, which is still needed", name, in.name, other.name)
				}
			}
		}
	}
}

func TestRunRefusesWrongMemory(t *testing.T) {
	s := compile(t, mlp(4, 6, 5, 3), tensor.Float32, 1, false)
	for _, gradients := range [][][]byte{nil, {s.gradients[0]}, {s.gradients[0], s.gradients[1][:8]}, {s.gradients[0], aligned(len(s.gradients[1]) + 1)[1:]}} {
		if _, err := s.program.Run(Call{}, gradients, nil); err == nil {
			t.Errorf("%d gradients are accepted", len(gradients))
		}
	}
	same(t, s.run(t), compile(t, mlp(4, 6, 5, 3), tensor.Float32, 1, false).run(t), 0)
}
