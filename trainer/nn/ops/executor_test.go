package ops

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// program is a model compiled by package executor.
type program struct {
	*executor.Program
	bytes     [][]byte
	gradients [][]float64
}

func compile(t *testing.T, shapes [][]int, gradient int, m model) *program {
	t.Helper()
	g := gorgonia.NewGraph()
	var in gorgonia.Nodes
	for i, s := range shapes {
		in = append(in, gorgonia.NewTensor(g, tensor.Float64, len(s), gorgonia.WithShape(s...), gorgonia.WithName(fmt.Sprintf("in%d", i))))
	}
	out, err := m(in)
	must(t, err)
	loss, err := squares(out)
	must(t, err)
	p := &program{}
	p.Program, err = executor.Compile(g, executor.Plan{Inputs: in, Loss: loss, Differentiate: in[:gradient], Outputs: gorgonia.Nodes{out}})
	must(t, err)
	for i, v := range inputs(shapes) {
		copy(data[float64](p.Input(i)), v)
	}
	for _, s := range shapes[:gradient] {
		x := make([]float64, memory.Elements(s))
		p.gradients = append(p.gradients, x)
		p.bytes = append(p.bytes, unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 8*len(x)))
	}
	return p
}

func (p *program) run(t *testing.T, call operation.Call) {
	_, err := p.Run(call, p.bytes, nothing)
	must(t, err)
}

func nothing(int) {}

// Package executor must compute the same results as running the operations one
// by one, in training and in evaluation, in several consecutive runs.
func TestExecutor(t *testing.T) {
	for name, c := range everything {
		p := compile(t, c.shapes, c.gradient, c.build)
		l := newLane(t, tensor.Float64, c.shapes, c.gradient, c.build)
		next := training
		next.Step++
		for _, call := range []operation.Call{training, {}, next} {
			p.run(t, call)
			must(t, l.run(call))
			near(t, name, get(p.Output(0)), get(l.values[l.want[c.gradient]]), 0)
			for i, got := range p.gradients {
				near(t, fmt.Sprintf("%s, gradient %d", name, i), got, get(l.values[l.want[i]]), 1e-14)
			}
		}
	}
}

func TestExecutorAllocatesNothing(t *testing.T) {
	for name, c := range everything {
		p := compile(t, c.shapes, c.gradient, c.build)
		p.run(t, training)
		if n := testing.AllocsPerRun(10, func() { p.run(t, training) }); n != 0 {
			t.Errorf("%s: %v allocations in a run", name, n)
		}
	}
}
