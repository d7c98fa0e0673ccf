package compile

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Wanted says what of a graph is wanted. Package executor documents the fields
// in its Plan.
type Wanted struct {
	Inputs        gorgonia.Nodes
	Fixed         gorgonia.Nodes
	Loss          *gorgonia.Node
	Differentiate gorgonia.Nodes
	Outputs       gorgonia.Nodes
}

// check refuses contradictions before the graph is touched.
func (w Wanted) check(g *gorgonia.ExprGraph) error {
	if w.Loss == nil && len(w.Differentiate) > 0 {
		return errors.New("there is no loss to differentiate")
	}
	if err := w.checkLoss(); err != nil {
		return err
	}
	leaves := map[*gorgonia.Node]bool{}
	for _, n := range append(append(gorgonia.Nodes{}, w.Inputs...), w.Fixed...) {
		if n == nil || n.Op() != nil {
			return fmt.Errorf("%s is computed: an input or a fixed value must be a leaf", label(n))
		}
		if leaves[n] {
			return fmt.Errorf("%s is listed twice among inputs and fixed values", label(n))
		}
		leaves[n] = true
	}
	for _, n := range w.Differentiate {
		if !leaves[n] {
			return fmt.Errorf("%s is to be differentiated by, but is neither an input nor a fixed value", label(n))
		}
		if n.Deriv() != nil {
			return fmt.Errorf("%s has a gradient already: compile a new graph", label(n))
		}
	}
	for _, n := range append(append(gorgonia.Nodes{}, w.Outputs...), w.Loss) {
		if n != nil && n.Graph() != g {
			return fmt.Errorf("%s belongs to another graph", label(n))
		}
	}
	return checkIndex(g)
}

func (w Wanted) checkLoss() error {
	if w.Loss == nil {
		if len(w.Outputs) == 0 {
			return errors.New("nothing is wanted: neither a loss nor an output")
		}
		return nil
	}
	if dt := w.Loss.Dtype(); dt != tensor.Float32 && dt != tensor.Float64 {
		return fmt.Errorf("the loss is %v, want float32 or float64", dt)
	}
	if !w.Loss.IsScalar() {
		return fmt.Errorf("the loss has shape %v, want a scalar", w.Loss.Shape())
	}
	return nil
}

// checkIndex refuses a graph whose vertices Gorgonia would mistake for one
// another. Some of Gorgonia's rewrites remove a vertex. That moves other
// vertices, but not their entries in the index that Grad uses.
func checkIndex(g *gorgonia.ExprGraph) error {
	for _, n := range g.AllNodes() {
		if g.Node(n.ID()) != n {
			return fmt.Errorf("gorgonia lost track of %s when it rewrote the graph: take the logarithm of 1+x right after x is added, or use Log1p", label(n))
		}
	}
	return nil
}

// differentiate adds the gradients to the graph.
func (w Wanted) differentiate(g *gorgonia.ExprGraph) (grads gorgonia.Nodes, err error) {
	if len(w.Differentiate) == 0 {
		return nil, nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("differentiate %s: %v", label(w.Loss), r)
		}
	}()
	if err := w.vetGradients(); err != nil {
		return nil, err
	}
	if grads, err = gorgonia.Grad(w.Loss, w.Differentiate...); err != nil {
		return nil, fmt.Errorf("differentiate %s: %w", label(w.Loss), err)
	}
	return grads, checkIndex(g)
}
