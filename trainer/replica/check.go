package replica

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/executor/vertex"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Check returns an error if the model cannot be trained. It runs before the
// graph is compiled.
func (m Model) Check() error {
	if m.Loss == nil {
		return errors.New("the model has no loss: set Model.Loss")
	}
	if !m.Loss.IsScalar() {
		return fmt.Errorf("the loss has shape %v, want a scalar: reduce it with gorgonia.Mean or gorgonia.Sum", m.Loss.Shape())
	}
	if dt := m.Loss.Dtype(); dt != tensor.Float32 && dt != tensor.Float64 {
		return fmt.Errorf("the loss is %v, want float32 or float64", dt)
	}
	if len(m.Variables)+len(m.Lookups) == 0 {
		return errors.New("the model has no variables: set Model.Variables")
	}
	if err := m.checkStates(); err != nil {
		return err
	}
	if err := m.checkShard(); err != nil {
		return err
	}
	if err := m.checkNames(); err != nil {
		return err
	}
	for _, n := range m.Kept() {
		if n.Value() == nil {
			return fmt.Errorf("variable %q has no value: give it one with gorgonia.WithInit", n.Name())
		}
	}
	for i, n := range m.Frozen {
		switch {
		case n == nil || !n.IsVar() || n.Value() == nil:
			return fmt.Errorf("frozen node %d is no leaf with a value", i)
		case slices.Contains(m.Kept(), n) || slices.Contains(m.Inputs, n):
			return fmt.Errorf("%q is in Model.Frozen, and also an input or a variable", n.Name())
		}
	}
	for name, n := range m.Metrics {
		if n == nil || !n.IsScalar() {
			return fmt.Errorf("metric %q is no scalar", name)
		}
	}
	if err := m.checkCarried(); err != nil {
		return err
	}
	return m.checkReach()
}

func (m Model) checkStates() error {
	for i, s := range m.States {
		switch {
		case s.Variable == nil || s.Batch == nil:
			return fmt.Errorf("state %d lacks its variable or its batch value", i)
		case s.Variable.Dtype() != s.Batch.Dtype() || !s.Variable.Shape().Eq(s.Batch.Shape()):
			return fmt.Errorf("state %q is %v of shape %v, its batch value %v of shape %v", s.Variable.Name(),
				s.Variable.Dtype(), s.Variable.Shape(), s.Batch.Dtype(), s.Batch.Shape())
		case !(s.Momentum >= 0 && s.Momentum < 1):
			return fmt.Errorf("state %q: momentum is %v, want at least 0 and less than 1", s.Variable.Name(), s.Momentum)
		}
	}
	return nil
}

func (m Model) checkNames() error {
	seen := map[string]bool{}
	for i, n := range slices.Concat(m.Inputs, m.ShardInputs(), m.Kept(), m.LookupRows()) {
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
	last := -1
	for _, l := range m.Lookups {
		if l.At != last && (l.Table == "" || seen[l.Table]) {
			return fmt.Errorf("embedding %q: variables need distinct names", l.Table)
		}
		seen[l.Table], last = true, l.At
	}
	return nil
}

// Input returns the input of that name, or nil if there is none.
func (m Model) Input(name string) *gorgonia.Node {
	for _, n := range m.Inputs {
		if n.Name() == name {
			return n
		}
	}
	return nil
}

func (m Model) checkShard() error {
	for _, n := range m.ShardInputs() {
		if dt := n.Dtype(); !slices.Equal(n.Shape(), []int{1}) || dt != tensor.Float32 && dt != tensor.Float64 && dt != tensor.Int64 {
			return fmt.Errorf("%q is %v of shape %v: want ShardID and NumShards of shape (1), float32, float64 or int64", n.Name(), dt, n.Shape())
		}
	}
	return nil
}

func (m Model) checkCarried() error {
	for name, last := range m.Carried {
		first := m.Input(name)
		switch {
		case first == nil:
			return fmt.Errorf("carried %q: the model has no such input", name)
		case last == nil:
			return fmt.Errorf("carried %q: the node is nil", name)
		case first.Dtype() != tensor.Float32 && first.Dtype() != tensor.Float64:
			return fmt.Errorf("carried %q: the input is %v, want float32 or float64", name, first.Dtype())
		case first.Dtype() != last.Dtype() || !first.Shape().Eq(last.Shape()):
			return fmt.Errorf("carried %q: the input is %v of shape %v, but the value for the next step is %v of shape %v", name,
				first.Dtype(), first.Shape(), last.Dtype(), last.Shape())
		}
	}
	return nil
}

// Unlisted returns the leaves of the graph that have a value and would get a
// gradient, but that no field of the model lists. Training does not change
// them.
func (m Model) Unlisted() (all gorgonia.Nodes, err error) {
	seen := map[*gorgonia.Node]bool{}
	for _, n := range slices.Concat(m.Inputs, m.ShardInputs(), m.LookupRows(), m.Kept(), m.Frozen) {
		seen[n] = true
	}
	todo := []*gorgonia.Node{m.Loss}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[n] {
			continue
		}
		seen[n] = true
		if dt := n.Dtype(); n.IsVar() && n.Value() != nil && (dt == tensor.Float32 || dt == tensor.Float64) {
			all = append(all, n)
		}
		below, err := differentiated(n)
		if err != nil {
			return nil, err
		}
		todo = append(todo, below...)
	}
	slices.SortFunc(all, func(a, b *gorgonia.Node) int { return strings.Compare(a.Name(), b.Name()) })
	return all, nil
}

// differentiated returns the inputs of vertex n for which its operation
// computes a gradient.
func differentiated(n *gorgonia.Node) (all gorgonia.Nodes, err error) {
	op, ok := n.Op().(gorgonia.SDOp)
	if !ok {
		return nil, nil
	}
	below, err := vertex.Children(n)
	if err != nil {
		return nil, err
	}
	for i, passes := range op.DiffWRT(len(below)) {
		if passes {
			all = append(all, below[i])
		}
	}
	return all, nil
}

// checkReach returns an error if the loss does not depend on a variable or a
// lookup. It also returns an error if the loss depends on a leaf that is
// neither an input nor has a value.
func (m Model) checkReach() error {
	reached, fed := map[int64]bool{}, slices.Concat(m.Inputs, m.ShardInputs(), m.LookupRows())
	var unset []string
	todo := []*gorgonia.Node{m.Loss}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if reached[n.ID()] {
			continue
		}
		reached[n.ID()] = true
		if n.IsVar() && n.Value() == nil && !slices.Contains(fed, n) {
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
	for _, l := range m.Lookups {
		if !reached[l.Rows.ID()] {
			return fmt.Errorf("embedding %q gets no gradient from the rows that %q looks up: the loss does not depend on them", l.Table, l.Feed())
		}
	}
	if len(unset) > 0 {
		return fmt.Errorf("the loss needs %s: list it in Model.Inputs or give it a value", strings.Join(unset, ", "))
	}
	return nil
}
