package main

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/executor"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// compiled is a model in float64 on one device. The rows of tables are inputs.
type compiled struct {
	*executor.Program
	names     []string
	values    [][]float64 // that the loss is differentiated by
	gradients [][]float64
	bytes     [][]byte
}

func compile(t testing.TB, build trainer.Build, batch int, lookups ...string) (*compiled, trainer.Model) {
	t.Helper()
	g := gorgonia.NewGraph()
	m, err := build(g, batch)
	if err != nil {
		t.Fatal(err)
	}
	p, plan := &compiled{}, executor.Plan{Inputs: append(gorgonia.Nodes{}, m.Inputs...), Fixed: m.Variables, Loss: m.Loss, Outputs: gorgonia.Nodes{m.Metrics["accuracy"]}}
	for _, v := range m.Variables {
		plan.FixedValues = append(plan.FixedValues, v.Value())
		plan.Differentiate = append(plan.Differentiate, v)
		p.names, p.values = append(p.names, v.Name()), append(p.values, v.Value().Data().([]float64))
	}
	for _, name := range lookups {
		rows := g.ByName(name)[0]
		plan.Inputs, plan.Differentiate = append(plan.Inputs, rows), append(plan.Differentiate, rows)
	}
	if p.Program, err = executor.Compile(g, plan); err != nil {
		t.Fatal(err)
	}
	for i, name := range lookups {
		p.names, p.values = append(p.names, name), append(p.values, p.Input(len(m.Inputs)+i).Float64s())
	}
	for i, values := range p.values {
		for k := range values {
			values[k] += 0.3 * math.Sin(float64(7*i+k*k+1))
		}
		gradient := make([]float64, len(values))
		p.gradients = append(p.gradients, gradient)
		p.bytes = append(p.bytes, unsafe.Slice((*byte)(unsafe.Pointer(&gradient[0])), 8*len(gradient)))
	}
	return p, m
}

// feed gives the inputs some values. Of the second sentence the mask hides all
// but the first word.
func (p *compiled) feed(m trainer.Model, words int64) {
	for i, n := range m.Inputs {
		x, length := p.Input(i).Float64s(), n.Shape()[n.Dims()-1]
		for k := range x {
			switch {
			case n.Name() == "target":
				x[k] = float64(int64(5*k+2) % (special + words))
			case k <= length:
				x[k] = 1
			}
		}
	}
}

func (p *compiled) run(t testing.TB) float64 {
	t.Helper()
	loss, err := p.Run(executor.Call{Train: true}, p.bytes, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return loss
}

// Every element of every gradient against central differences, those of
// the words' rows too.
func TestGradient(t *testing.T) {
	for _, n := range []network{
		{words: 3, length: 3, width: 2, hidden: 3},
		{words: 2, length: 1, width: 1, hidden: 1},
		{words: 4, length: 4, width: 3, hidden: 2},
	} {
		t.Run(fmt.Sprintf("%+v", n), func(t *testing.T) {
			n.dtype = tensor.Float64
			p, m := compile(t, n.build, 2, "source", "before")
			p.feed(m, int64(n.words))
			p.run(t)
			gradients := make([][]float64, len(p.gradients))
			for i, x := range p.gradients {
				gradients[i] = append(gradients[i], x...)
			}
			const h = 1e-5
			for i, values := range p.values {
				for k, at := range values {
					values[k] = at + h
					up := p.run(t)
					values[k] = at - h
					want := (up - p.run(t)) / (2 * h)
					values[k] = at
					if got := gradients[i][k]; math.Abs(got-want) > 1e-7*(1+math.Abs(want)) {
						t.Errorf("%s[%d]: gradient is %v, want %v", p.names[i], k, got, want)
					}
				}
			}
		})
	}
}
