package trainer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Build makes a complete single-device model in an empty graph. batch is the
// number of rows that one worker feeds. It is called once for training and
// again for every batch size that is evaluated, and must build the same each
// time: every worker compares what it built with the others.
type Build func(g *gorgonia.ExprGraph, batch int) (Model, error)

// Model names what matters in a graph.
type Model struct {
	Inputs    gorgonia.Nodes // fed at every step, by name
	Variables gorgonia.Nodes // trained; each with a name and a value (gorgonia.WithInit)
	Loss      *gorgonia.Node // a scalar, float32 or float64
	LossKind  LossKind
	Fetches   map[string]*gorgonia.Node // further values that a step or an evaluation returns
}

// LossKind says what the loss of a batch is, and with it how gradients of
// several workers are put together.
type LossKind int

// A Mean over the rows makes workers average their gradients, a Sum over the
// rows makes them add.
const (
	Mean LossKind = iota
	Sum
)

func (k LossKind) String() string {
	switch k {
	case Mean:
		return "mean"
	case Sum:
		return "sum"
	}
	return fmt.Sprintf("LossKind(%d)", int(k))
}

// check says what is wrong with m before anything is compiled.
func (m Model) check() error {
	if m.Loss == nil {
		return errors.New("the model has no loss: set Model.Loss")
	}
	if !m.Loss.IsScalar() {
		return fmt.Errorf("the loss has shape %v, want a scalar: reduce it with gorgonia.Mean or gorgonia.Sum", m.Loss.Shape())
	}
	if dt := m.Loss.Dtype(); dt != tensor.Float32 && dt != tensor.Float64 {
		return fmt.Errorf("the loss is %v, want float32 or float64", dt)
	}
	if m.LossKind != Mean && m.LossKind != Sum {
		return fmt.Errorf("the loss kind is %v, want Mean or Sum", m.LossKind)
	}
	if len(m.Variables) == 0 {
		return errors.New("the model has no variables: set Model.Variables")
	}
	seen := map[string]bool{}
	for i, n := range slices.Concat(m.Inputs, m.Variables) {
		switch {
		case n == nil:
			return fmt.Errorf("input or variable %d is nil", i)
		case !n.IsVar():
			return fmt.Errorf("%q is computed, so it is neither an input nor a variable", n.Name())
		case n.Name() == "" || seen[n.Name()]:
			return fmt.Errorf("%q: inputs and variables need distinct names (gorgonia.WithName)", n.Name())
		}
		seen[n.Name()] = true
	}
	for _, n := range m.Variables {
		if n.Value() == nil {
			return fmt.Errorf("variable %q has no value: give it one with gorgonia.WithInit", n.Name())
		}
	}
	return m.checkReach()
}

// checkReach wants every variable to have a gradient, and everything that the
// loss needs to have a value.
func (m Model) checkReach() error {
	reached := map[int64]bool{}
	var unset []string
	todo := []*gorgonia.Node{m.Loss}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if reached[n.ID()] {
			continue
		}
		reached[n.ID()] = true
		if n.IsVar() && n.Value() == nil && !slices.Contains(m.Inputs, n) {
			unset = append(unset, fmt.Sprintf("%q", n.Name()))
		}
		for below := m.Loss.Graph().From(n.ID()); below.Next(); {
			todo = append(todo, below.Node().(*gorgonia.Node))
		}
	}
	for _, n := range m.Variables {
		if !reached[n.ID()] {
			return fmt.Errorf("variable %q gets no gradient: the loss does not depend on it", n.Name())
		}
	}
	if len(unset) > 0 {
		return fmt.Errorf("the loss needs %s: list it in Model.Inputs or give it a value", strings.Join(unset, ", "))
	}
	return nil
}
