package executor

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/cpu"
	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Plan says what of a graph is wanted.
type Plan struct {
	// Inputs are leaves that are fed before every run. The program owns their
	// memory.
	Inputs gorgonia.Nodes
	// Fixed are leaves whose memory the caller owns. Replicas share it.
	Fixed gorgonia.Nodes
	// FixedValues are the values of Fixed, row-major. The caller may change
	// their contents between runs. During a run it may change a variable once
	// the run has announced the variable's gradient.
	FixedValues []gorgonia.Value
	// Loss is a scalar, float32 or float64. It may be nil if Differentiate is
	// empty.
	Loss *gorgonia.Node
	// Differentiate are the leaves, among Fixed and Inputs, whose gradient of
	// Loss is wanted.
	Differentiate gorgonia.Nodes
	// Outputs are further values that are wanted after a run. Nothing else
	// uses their memory until the next run.
	Outputs gorgonia.Nodes
}

// Compile makes a program that computes what p wants of g. It adds the
// gradients to g.
//
// The error names the vertex of a refused operation, a leaf without a value, a
// gradient that does not exist, and shapes that do not fit together.
func Compile(g *gorgonia.ExprGraph, p Plan) (*Program, error) {
	program, err := p.compile(g)
	if err != nil {
		return nil, fmt.Errorf("compile the graph: %w", err)
	}
	return program, nil
}

func (p Plan) compile(g *gorgonia.ExprGraph) (*Program, error) {
	if len(p.Fixed) != len(p.FixedValues) {
		return nil, fmt.Errorf("%d fixed leaves and %d values for them", len(p.Fixed), len(p.FixedValues))
	}
	compiled, err := compile.Graph(g, compile.Wanted{
		Inputs: p.Inputs, Fixed: p.Fixed, Loss: p.Loss, Differentiate: p.Differentiate, Outputs: p.Outputs})
	if err != nil {
		return nil, err
	}
	fixed := make([][]byte, len(p.FixedValues))
	for i, value := range p.FixedValues {
		if fixed[i], err = fixedMemory(compiled.Fixed[i], value); err != nil {
			return nil, err
		}
	}
	machine, err := cpu.New(compiled, fixed, gorgonia.WhichBLAS())
	if err != nil {
		return nil, err
	}
	return newProgram(compiled, machine)
}

// fixedMemory is the memory of the value of a fixed leaf.
func fixedMemory(v *compile.Value, value gorgonia.Value) ([]byte, error) {
	if value == nil || value.Dtype() != v.Dtype {
		return nil, fmt.Errorf("the value of %s is of another type", v.Label())
	}
	b, plain := memory.Raw(value)
	if d, ok := value.(*tensor.Dense); !plain || len(b) != v.Length() || ok && d.IsScalar() {
		return nil, fmt.Errorf("the value of %s has shape %v: want its own, row-major", v.Label(), value.Shape())
	}
	return b, nil
}
