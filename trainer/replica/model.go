package replica

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/wire"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Model names the nodes of one graph. Every table has a lookup.
type Model struct {
	Inputs    gorgonia.Nodes // fed at every step
	Variables gorgonia.Nodes // trained; each has a value
	States    []State        // running averages
	Frozen    gorgonia.Nodes // leaves that keep their values
	Lookups   []Lookup       // in the order of their tables
	Loss      *gorgonia.Node // a scalar
	Metrics   map[string]*gorgonia.Node
	Fetches   map[string]*gorgonia.Node
	Carried   map[string]*gorgonia.Node // by input: what the next step is fed for it
	// Shard are inputs that Run sets: to the number of the virtual worker, and to the
	// number of all virtual workers. nil means that the model has no such input.
	Shard [2]*gorgonia.Node
}

// ShardInputs are those of Shard that the model has.
func (m Model) ShardInputs() (all gorgonia.Nodes) {
	for _, n := range m.Shard {
		if n != nil {
			all = append(all, n)
		}
	}
	return all
}

// State is a variable that is not trained but follows a value of the graph: after a
// step it is Momentum times itself plus the rest times the average of Batch over all
// virtual workers.
type State struct {
	Variable *gorgonia.Node // with a name and a first value
	Batch    *gorgonia.Node // of the same type and shape
	Momentum float64        // in [0, 1)
}

// Lookup is an input that takes rows of an embedding table.
type Lookup struct {
	Table string         // name of the table
	At    int            // index of the table
	Rows  *gorgonia.Node // (n, width)
	Index string         // the feed's name for the n indices; empty: that of Rows
}

// Feed is the feed's name for the indices.
func (l Lookup) Feed() string { return cmp.Or(l.Index, l.Rows.Name()) }

// Kept are the variables that every worker holds whole: the trained ones, then
// those of the states.
func (m Model) Kept() gorgonia.Nodes {
	all := slices.Clone(m.Variables)
	for _, s := range m.States {
		all = append(all, s.Variable)
	}
	return all
}

// LookupRows are the inputs that take rows of tables, table by table.
func (m Model) LookupRows() (all gorgonia.Nodes) {
	for _, l := range m.Lookups {
		all = append(all, l.Rows)
	}
	return all
}

// newLike returns a zero value of n's type and shape, in row-major order.
func newLike(n *gorgonia.Node) (gorgonia.Value, error) {
	switch dt := n.Dtype(); {
	case dt != tensor.Float32 && dt != tensor.Float64:
		return nil, fmt.Errorf("%q is %v, want float32 or float64", n.Name(), dt)
	case !n.IsScalar():
		return tensor.New(tensor.Of(dt), tensor.WithShape(n.Shape()...)), nil
	case dt == tensor.Float32:
		return gorgonia.NewF32(0), nil
	}
	return gorgonia.NewF64(0), nil
}

// RowMajor returns v's memory, not a copy. ok is false unless its elements are
// floats in row-major order without gaps.
func RowMajor(v gorgonia.Value) (b []byte, ok bool) {
	if dt := v.Dtype(); dt != tensor.Float32 && dt != tensor.Float64 {
		return nil, false
	}
	if dense, ok := v.(*tensor.Dense); ok && dense.Dims() == 0 {
		return nil, false // a tensor without dimensions gives copies only
	}
	return memory.Raw(v)
}

// bind gives every kept variable memory of plx's own: what a node holds may be
// shared with another graph.
func (m Model) bind(values []gorgonia.Value) ([]gorgonia.Value, error) {
	fresh, kept := values == nil, m.Kept()
	if !fresh && len(values) != len(kept) {
		return nil, fmt.Errorf("Build made %d variables, the first time %d", len(kept), len(values))
	}
	for i, n := range kept {
		if fresh {
			v, err := newLike(n)
			if err != nil {
				return nil, fmt.Errorf("variable: %w", err)
			}
			into, _ := RowMajor(v) // newLike made it so
			if err := memory.Copy(into, n.Value()); err != nil {
				return nil, fmt.Errorf("variable %q: first value: %w", n.Name(), err)
			}
			values = append(values, v)
		}
		if !n.Shape().Eq(values[i].Shape()) {
			return nil, fmt.Errorf("variable %q has shape %v, the first time %v", n.Name(), n.Shape(), values[i].Shape())
		}
	}
	return values, nil
}

// number reads a scalar.
func number(v gorgonia.Value) (float64, error) {
	switch v.Dtype() {
	case tensor.Float32:
		var x [1]float32
		err := memory.Copy(wire.Bytes(x[:]), v)
		return float64(x[0]), err
	case tensor.Float64:
		var x [1]float64
		err := memory.Copy(wire.Bytes(x[:]), v)
		return x[0], err
	}
	return 0, fmt.Errorf("the loss is no number but %T", v)
}
