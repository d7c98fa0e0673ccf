// Package modeltest checks the gradients of a model against finite
// differences.
package modeltest

import (
	"math"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/operation"
	"github.com/plx-run/plx/trainer/wire"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Fill fills the tensor into with values for an input of the model. number is
// the index of the input.
type Fill func(input *gorgonia.Node, number int, into *tensor.Dense)

// Gradients compares the gradients of a float64 model with central
// differences, element by element. batch is the number of rows of a batch.
// Gradients checks all variables, and the table rows that the lookups named in
// lookups return.
func Gradients(t *testing.T, build trainer.Build, batch int, fill Fill, lookups ...string) {
	t.Helper()
	p, m := compile(t, build, batch, lookups...)
	for i, n := range m.Inputs {
		fill(n, i, p.Input(i))
	}
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
}

// compiled is a float64 model compiled for the CPU. The looked-up rows of
// embedding tables are inputs of the model.
type compiled struct {
	*executor.Program
	names     []string
	values    [][]float64 // values of the variable or of the looked-up rows, with the same indices as names
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
	p, plan := &compiled{}, executor.Plan{Inputs: slices.Clone(m.Inputs), Loss: m.Loss}
	for _, metric := range m.Metrics {
		plan.Outputs = append(plan.Outputs, metric)
	}
	for _, s := range m.States {
		plan.Fixed, plan.FixedValues = append(plan.Fixed, s.Variable), append(plan.FixedValues, s.Variable.Value())
	}
	for _, v := range m.Variables {
		plan.Fixed = append(plan.Fixed, v)
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
		p.bytes = append(p.bytes, wire.Bytes(gradient))
	}
	return p, m
}

func (p *compiled) run(t testing.TB) float64 {
	t.Helper()
	loss, err := p.Run(operation.Call{Train: true}, p.bytes, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return loss
}
