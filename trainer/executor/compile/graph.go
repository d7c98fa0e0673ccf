package compile

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/executor/vertex"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// largestMerged is the size in bytes up to which constants are compared by
// their contents.
const largestMerged = 4096

// builder translates the wanted part of a graph into values.
type builder struct {
	leaves map[*gorgonia.Node]leaf
	seen   map[*gorgonia.Node]*Value
	merged map[string]*Value // by everything that a value depends on
	values []*Value          // by id; a value comes after its inputs
}

// leaf is the part that a leaf of the graph plays.
type leaf struct {
	kind  Kind
	place Place
}

func newBuilder(p Plan) *builder {
	b := &builder{leaves: map[*gorgonia.Node]leaf{}, seen: map[*gorgonia.Node]*Value{}, merged: map[string]*Value{}}
	for i, n := range p.Inputs {
		b.leaves[n] = leaf{Input, Place{InInputs, i}}
	}
	for i, n := range p.Fixed {
		b.leaves[n] = leaf{Fixed, Place{InFixed, i}}
	}
	return b
}

// targets makes the values of everything that is wanted.
func (b *builder) targets(p Plan, grads gorgonia.Nodes) (t targets, err error) {
	for i, n := range grads {
		v, err := b.value(n)
		if err != nil {
			return t, err
		}
		variable, err := b.value(p.Differentiate[i])
		if err != nil {
			return t, err
		}
		if v.Size() != variable.Size() || v.Dtype != variable.Dtype {
			return t, fmt.Errorf("the gradient of %s has shape %v and type %v", variable.Label(), v.Shape, v.Dtype)
		}
		t.gradients, t.variables = append(t.gradients, v), append(t.variables, variable)
	}
	outputs := slices.Clone(p.Outputs)
	if p.Loss != nil {
		outputs = append(outputs, p.Loss)
	}
	for _, n := range outputs {
		v, err := b.value(n)
		if err != nil {
			return t, err
		}
		if !v.Root.computed() {
			v = b.copyOf(v)
		}
		t.outputs = append(t.outputs, v)
	}
	return t, nil
}

// leafValues makes the values of leaves, also of those that nothing is computed
// from.
func (b *builder) leafValues(leaves gorgonia.Nodes) ([]*Value, error) {
	var all []*Value
	for _, n := range leaves {
		v, err := b.value(n)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// value translates n and everything that it is computed from.
func (b *builder) value(n *gorgonia.Node) (*Value, error) {
	if v := b.seen[n]; v != nil {
		return v, nil
	}
	v, err := b.translate(n)
	if err != nil {
		return nil, err
	}
	b.seen[n] = v
	return v, nil
}

func (b *builder) translate(n *gorgonia.Node) (*Value, error) {
	if n.Op() == nil || n.Value() != nil && isConstant(n) {
		return b.translateLeaf(n)
	}
	op, err := decode(n.Op())
	if err != nil {
		return nil, err
	}
	below, err := vertex.Children(n)
	if err != nil {
		return nil, err
	}
	if name, _, _ := vertex.Fields(n.Op()); name == "sizeOp" {
		return b.translateSize(n, below)
	}
	inputs := make([]*Value, len(below))
	for i, c := range below {
		if inputs[i], err = b.value(c); err != nil {
			return nil, err
		}
	}
	if op.Kind == Other {
		if op.plain, err = vet(n); err != nil {
			return nil, err
		}
	}
	v := newValue(n, op, inputs)
	if err := v.simplify(); err != nil {
		return nil, fmt.Errorf("%s: %w", v.Label(), err)
	}
	return b.merge(v), nil
}

func newValue(n *gorgonia.Node, op Op, inputs []*Value) *Value {
	v := &Value{Node: n, Op: op, Inputs: inputs, Dtype: n.Dtype(), Shape: n.Shape(), Scalar: n.IsScalar()}
	if v.Scalar {
		v.Shape = tensor.Shape{}
	}
	return v
}

// merge returns the value that equals v, which may be v.
func (b *builder) merge(v *Value) *Value {
	if !v.Op.mergeable() {
		return b.add(v)
	}
	key := fmt.Sprintf("%+v %v %v %v", v.Op, v.Dtype, v.Shape, v.Scalar)
	for _, in := range v.Inputs {
		key += fmt.Sprintf(" %d", in.id)
	}
	return b.addOnce(key, v)
}

// addOnce returns the value that was added with this key, or adds v.
func (b *builder) addOnce(key string, v *Value) *Value {
	if same := b.merged[key]; same != nil {
		return same
	}
	b.merged[key] = v
	return b.add(v)
}

func (b *builder) add(v *Value) *Value {
	v.id, v.Root = len(b.values), v
	if v.Op.Kind == Alias {
		v.Root = v.Inputs[0].Root
	}
	b.values = append(b.values, v)
	return v
}

// translateLeaf takes an input, a fixed value, or a constant. Any other leaf
// keeps the value that it has now.
func (b *builder) translateLeaf(n *gorgonia.Node) (*Value, error) {
	if l, known := b.leaves[n]; known {
		v := b.add(newValue(n, Op{Kind: l.kind}, nil))
		v.put(l.place.Area, l.place.Index)
		return v, nil
	}
	if n.Value() == nil {
		return nil, fmt.Errorf("%s has no value: list it in Plan.Inputs or give it one", label(n))
	}
	v := newValue(n, Op{Kind: Constant}, nil)
	if err := memory.Copy(v.hold(), n.Value()); err != nil {
		return nil, fmt.Errorf("constant %s: %w", label(n), err)
	}
	return b.addConstant(v), nil
}

// addConstant merges small constants with equal contents.
func (b *builder) addConstant(v *Value) *Value {
	if len(v.Data) > largestMerged {
		return b.add(v)
	}
	return b.addOnce(fmt.Sprint("constant ", v.Dtype, v.Shape, v.Scalar, v.Data), v)
}

// translateSize makes a constant of the size of a dimension.
func (b *builder) translateSize(n *gorgonia.Node, below []*gorgonia.Node) (*Value, error) {
	_, f, _ := vertex.Fields(n.Op())
	size, axis := 1, int(f[0].Int())
	if s := below[0].Shape(); !below[0].IsScalar() {
		if axis >= len(s) {
			return nil, fmt.Errorf("%s: there is no dimension %d in %v", label(n), axis, s)
		}
		size = s[axis]
	}
	v := newValue(n, Op{Kind: Constant}, nil)
	switch data := v.hold(); v.Dtype {
	case tensor.Float32:
		memory.View[float32](data)[0] = float32(size)
	case tensor.Float64:
		memory.View[float64](data)[0] = float64(size)
	case tensor.Int:
		memory.View[int](data)[0] = size
	default:
		return nil, fmt.Errorf("%s: a size of type %v is not supported", label(n), v.Dtype)
	}
	return b.addConstant(v), nil
}

func isConstant(n *gorgonia.Node) bool {
	name, _, _ := vertex.Fields(n.Op())
	return name == "constantScalar" || name == "constantTensor"
}

// copyOf adds a copy of v that has memory of its own.
func (b *builder) copyOf(v *Value) *Value {
	return b.add(&Value{Node: v.Node, Op: Op{Kind: Copy}, Inputs: []*Value{v}, Dtype: v.Dtype, Shape: slices.Clone(v.Shape), Scalar: v.Scalar})
}
