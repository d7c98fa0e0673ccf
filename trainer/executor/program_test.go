package executor

import (
	"slices"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The run calls ready for the last layer's gradient first. It calls ready once
// for each gradient, and not before the last instruction that reads the
// gradient's variable.
func TestGradientsAreReadyLastLayerFirst(t *testing.T) {
	s := compiled(t, mlp(4, 6, 5, 4, 3), tensor.Float32, 1, false)
	var order []int
	_, err := s.program.Run(operation.Call{}, s.gradients, func(i int) { order = append(order, i) })
	check(t, err)
	if !slices.Equal(order, []int{2, 1, 0}) {
		t.Errorf("announced %v, want the last layer first", order)
	}
	first := slices.IndexFunc(s.program.compiled.Instructions, func(in compile.Instruction) bool { return len(in.Ready) > 0 })
	if n := len(s.program.compiled.Instructions); first > n*3/4 {
		t.Errorf("the first gradient is announced after instruction %d of %d", first, n)
	}
}

// When a run calls ready for a gradient, the caller may overwrite the gradient
// and its variable at once, without an effect on the run.
func TestVariablesMayBeOverwrittenWhenReady(t *testing.T) {
	for name, b := range map[string]build{"mlp": mlp(4, 6, 5, 4, 3), "conv": smallConv, "reads variables": readsVariables, "shared gradient": sharedGradient} {
		t.Run(name, func(t *testing.T) {
			want := compiled(t, b, tensor.Float64, 1, false).run(t)
			s := compiled(t, b, tensor.Float64, 1, false)
			got := results{gradients: make([][]float64, len(s.gradients))}
			var err error
			got.loss, err = s.program.Run(operation.Call{}, s.gradients, func(i int) {
				if got.gradients[i] != nil {
					t.Errorf("gradient %d is announced twice", i)
				}
				got.gradients[i] = float64s(tensor.Float64, s.gradients[i])
				poison(memory.View[float64](s.gradients[i]))
				b, _ := memory.Raw(s.values[i])
				poison(memory.View[float64](b))
			})
			check(t, err)
			for i := range s.model.outputs {
				got.outputs = append(got.outputs, floatsOf(t, s.program.Output(i)))
			}
			same(t, got, want, 0)
		})
	}
}

func poison(x []float64) {
	for i := range x {
		x[i] = 1e30
	}
}

// readsVariables builds a model with two kinds of outputs: variables, and a
// value that no gradient needs.
func readsVariables(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
	m := mlp(4, 6, 5, 3)(g, dt)
	m.outputs = append(m.outputs, m.variables[0], m.inputs[0], must(gorgonia.Sum(must(gorgonia.Square(m.variables[1])))),
		must(gorgonia.Reshape(m.variables[0], tensor.Shape{5, 6})), m.loss)
	return m
}

// sharedGradient builds a model in which two variables have the same gradient,
// and a third gradient is an input.
func sharedGradient(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
	x := leaf(g, dt, "x", 3, 2)
	a, b, c := leaf(g, dt, "a", 3, 2), leaf(g, dt, "b", 3, 2), leaf(g, dt, "c", 3, 2)
	squares := must(gorgonia.Square(must(gorgonia.Add(a, b))))
	loss := must(gorgonia.Sum(must(gorgonia.Add(squares, must(gorgonia.HadamardProd(x, c))))))
	return model{g, nodes{x}, nodes{a, b, c}, loss, nodes{squares}}
}

// After a run, an output has the value that its instruction computed: later
// instructions do not overwrite it.
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
	same(t, compiled(t, every, tensor.Float64, 1, false).run(t), naively(t, every, tensor.Float64, 1, false), 1e-12)
}

func TestEvaluationComputesNoGradients(t *testing.T) {
	b := func(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
		m := mlp(4, 6, 5, 3)(g, dt)
		m.outputs = append(m.outputs, m.loss)
		m.loss = nil
		return m
	}
	s := compiled(t, b, tensor.Float32, 1, false)
	same(t, s.run(t), naively(t, b, tensor.Float32, 1, false), 1e-5)
	if n := len(s.program.compiled.Instructions); n > 15 {
		t.Errorf("an evaluation takes %d instructions: gradients are computed", n)
	}
}

// Equal vertices are computed once. Vertices that differ but have the same
// hash are both computed.
func TestEqualVerticesAreMerged(t *testing.T) {
	b := func(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
		a := leaf(g, dt, "a", 3, 4)
		tall := leaf(g, dt, "b", 300, 2)
		soft := must(gorgonia.SoftMax(a, 1))
		scaled := must(gorgonia.Square(a)) // prevents Gorgonia from merging the two vertices itself
		logarithm := must(gorgonia.LogSoftMax(must(gorgonia.Sqrt(scaled)), 1))
		return model{g, nil, nodes{a, tall}, nil, nodes{soft, logarithm}}
	}
	same(t, compiled(t, b, tensor.Float64, 1, true).run(t), naively(t, b, tensor.Float64, 1, true), 1e-12)
}

// Four replicas run concurrently and share their variables.
func TestReplicasShareVariables(t *testing.T) {
	const replicas = 4
	want := compiled(t, smallConv, tensor.Float32, 1, false).run(t)
	shared := compiled(t, smallConv, tensor.Float32, 1, false)
	sessions := []*session{shared}
	for range replicas - 1 {
		m := smallConv(gorgonia.NewGraph(), tensor.Float32)
		s := &session{model: m, values: shared.values}
		var err error
		s.program, err = Compile(m.g, Plan{Inputs: m.inputs, Fixed: m.variables, FixedValues: shared.values, Loss: m.loss, Differentiate: m.variables, Outputs: m.outputs})
		check(t, err)
		for i := range m.inputs {
			check(t, tensor.Copy(s.program.Input(i), shared.program.Input(i)))
		}
		for _, g := range shared.gradients {
			s.gradients = append(s.gradients, memory.Aligned(len(g)))
		}
		sessions = append(sessions, s)
	}
	all := make([]results, replicas)
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

// Every instruction comes after the instructions that compute its inputs.
func TestInstructionsFollowTheirInputs(t *testing.T) {
	s := compiled(t, smallConv, tensor.Float32, 1, false)
	announced := 0
	computed := map[*compile.Value]bool{}
	for _, in := range s.program.compiled.Instructions {
		announced += len(in.Ready)
		for _, from := range in.Value.Inputs {
			switch from.Root.Place.Area {
			case compile.InArena, compile.InGradients:
				if !computed[from] && from.Op.Kind != compile.Alias {
					t.Errorf("%s reads %s, which is not computed yet", in.Value.Label(), from.Label())
				}
			}
		}
		computed[in.Value] = true
	}
	if announced != 3 || s.program.compiled.ArenaBytes == 0 {
		t.Errorf("%d gradients announced, arena of %d bytes", announced, s.program.compiled.ArenaBytes)
	}
}

// lifetime is the first and the last instruction that reads or writes the
// memory of a value.
type lifetime struct{ first, last int }

// lifetimes finds the lifetimes of all values with memory of their own, from
// the instructions and without the planner.
func lifetimes(p *compile.Program) map[*compile.Value]lifetime {
	all := map[*compile.Value]lifetime{}
	touch := func(v *compile.Value, at int) {
		l, known := all[v.Root]
		if !known {
			l.first = at
		}
		l.last = max(l.last, at)
		all[v.Root] = l
	}
	for i, in := range p.Instructions {
		touch(in.Value, i)
		for _, v := range in.Value.Inputs {
			touch(v, i)
		}
	}
	for _, v := range p.Outputs {
		touch(v, len(p.Instructions))
	}
	return all
}

// Two values that are in use at the same time do not overlap in memory.
func TestLiveValuesDoNotOverlap(t *testing.T) {
	for name, b := range map[string]build{"mlp": mlp(4, 6, 5, 4, 3), "conv": smallConv} {
		all := lifetimes(compiled(t, b, tensor.Float32, 1, false).program.compiled)
		for v, a := range all {
			for w, b := range all {
				if v == w || v.Place.Area != compile.InArena || w.Place.Area != compile.InArena || a.last < b.first || b.last < a.first {
					continue
				}
				if v.Place.Index < w.Place.Index+w.Length() && w.Place.Index < v.Place.Index+v.Length() {
					t.Errorf("%s: %s overlaps %s", name, v.Label(), w.Label())
				}
			}
		}
	}
}

func TestRunRefusesWrongMemory(t *testing.T) {
	s := compiled(t, mlp(4, 6, 5, 3), tensor.Float32, 1, false)
	for _, gradients := range [][][]byte{nil, {s.gradients[0]}, {s.gradients[0], s.gradients[1][:8]}, {s.gradients[0], memory.Aligned(len(s.gradients[1]) + 1)[1:]}} {
		if _, err := s.program.Run(operation.Call{}, gradients, nil); err == nil {
			t.Errorf("%d gradients are accepted", len(gradients))
		}
	}
	same(t, s.run(t), compiled(t, mlp(4, 6, 5, 3), tensor.Float32, 1, false).run(t), 0)
}
