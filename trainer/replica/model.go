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

// Model lists the nodes of one Gorgonia graph that training uses. Every
// embedding table has at least one lookup.
type Model struct {
	Inputs    gorgonia.Nodes // leaves that the caller feeds at every step
	Variables gorgonia.Nodes // trained variables; each node has an initial value
	States    []State        // running averages, such as those of a batch norm
	Frozen    gorgonia.Nodes // leaves whose values training does not change
	Lookups   []Lookup       // lookups of embedding tables, table by table
	Loss      *gorgonia.Node // loss of the model, a scalar
	Metrics   map[string]*gorgonia.Node
	Fetches   map[string]*gorgonia.Node
	Carried   map[string]*gorgonia.Node // indexed by the name of an input: node whose value becomes the input's value in the next step
	// Shard are the inputs that Run itself sets: the index of the virtual
	// worker (part of the global batch), and the number of all virtual
	// workers. A nil node means that the model has no such input.
	Shard [2]*gorgonia.Node
}

// ShardInputs returns the inputs of Shard that the model has.
func (m Model) ShardInputs() (all gorgonia.Nodes) {
	for _, n := range m.Shard {
		if n != nil {
			all = append(all, n)
		}
	}
	return all
}

// State is a variable that is not trained but is a running average of a value
// of the graph. After each step, its new value is Momentum times the old value
// plus (1-Momentum) times the average of Batch over all virtual workers (parts
// of the global batch).
type State struct {
	Variable *gorgonia.Node // variable with a name and an initial value
	Batch    *gorgonia.Node // node whose value is averaged, of the same type and shape as Variable
	Momentum float64        // weight of the old value, in [0, 1)
}

// Lookup is an input of the model that receives rows of an embedding table.
type Lookup struct {
	Table string         // name of the table
	At    int            // index of the table among the model's tables
	Rows  *gorgonia.Node // the input that receives the rows, of shape (number of indices, width of a row)
	Index string         // name under which the caller feeds the indices; empty means the name of Rows
}

// Feed returns the name under which the caller feeds the indices of the
// lookup.
func (l Lookup) Feed() string { return cmp.Or(l.Index, l.Rows.Name()) }

// Kept returns the variables that every worker keeps completely: the trained
// variables, then those of the states. Embedding tables are not among them.
func (m Model) Kept() gorgonia.Nodes {
	all := slices.Clone(m.Variables)
	for _, s := range m.States {
		all = append(all, s.Variable)
	}
	return all
}

// LookupRows returns the inputs that receive rows of embedding tables, table
// by table.
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

// RowMajor returns v's memory, without a copy. ok is false unless v's elements
// are float32 or float64 and lie in row-major order without gaps.
func RowMajor(v gorgonia.Value) (b []byte, ok bool) {
	if dt := v.Dtype(); dt != tensor.Float32 && dt != tensor.Float64 {
		return nil, false
	}
	if dense, ok := v.(*tensor.Dense); ok && dense.Dims() == 0 {
		return nil, false // a tensor without dimensions returns only copies of its memory
	}
	return memory.Raw(v)
}

// bind returns the values of the variables in m.Kept. If the argument is nil,
// bind allocates the values and copies the initial values of the nodes into
// them. It does not use a node's own memory, which another graph may share. If
// the argument is not nil, bind checks that the shapes match the model.
func (m Model) bind(values []gorgonia.Value) ([]gorgonia.Value, error) {
	fresh, kept := values == nil, m.Kept()
	if !fresh && len(values) != len(kept) {
		return nil, fmt.Errorf("Build made %d variables, but %d the first time", len(kept), len(values))
	}
	for i, n := range kept {
		if fresh {
			v, err := newLike(n)
			if err != nil {
				return nil, fmt.Errorf("variable: %w", err)
			}
			into, _ := RowMajor(v) // always row-major, because newLike allocated v
			if err := memory.Copy(into, n.Value()); err != nil {
				return nil, fmt.Errorf("variable %q: first value: %w", n.Name(), err)
			}
			values = append(values, v)
		}
		if !n.Shape().Eq(values[i].Shape()) {
			return nil, fmt.Errorf("variable %q has shape %v, but the first time it had %v", n.Name(), n.Shape(), values[i].Shape())
		}
	}
	return values, nil
}

// number returns the value of a float32 or float64 scalar.
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
	return 0, fmt.Errorf("want a float32 or float64, got a %T", v)
}
