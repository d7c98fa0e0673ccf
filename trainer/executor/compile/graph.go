package compile

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/executor/vertex"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// largestMerged is a number of bytes. Equal constants of at most this size are
// merged into one value. Larger constants are not merged, because their
// contents would become a map key.
const largestMerged = 4096

// builder translates the vertices of the graph that the plan needs into
// values.
type builder struct {
	leaves map[*gorgonia.Node]leaf
	seen   map[*gorgonia.Node]*Value
	merged map[string]*Value // values added so far; the key is a text of operation, type, shape and inputs, which is the same for equal values
	values []*Value          // all values, indexed by Value.id; a value comes after its inputs
}

// leaf describes a leaf node of the graph. kind says whether it is an input or
// a fixed value (a value in the caller's memory); place is its index in the
// plan's list of such leaves.
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

// targets returns the values of the gradients, the variables, the outputs and
// the loss.
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

// leafValues returns the values of leaves. It includes leaves that no computed
// value depends on.
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

// value returns the Value of vertex n. It first translates all vertices from
// which n is computed.
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

// merge returns an earlier value that is equal to v. If there is none, merge
// adds v and returns it.
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

// addOnce adds v and returns it. If an earlier value was added with the same
// key, it returns the earlier value instead.
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

// translateLeaf translates a leaf of the graph. A leaf that is neither an
// input nor a fixed value of the plan becomes a constant with the contents
// that the leaf has now.
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

// addConstant adds constant v, or returns an earlier constant with equal
// contents. It does not compare constants larger than largestMerged.
func (b *builder) addConstant(v *Value) *Value {
	if len(v.Data) > largestMerged {
		return b.add(v)
	}
	return b.addOnce(fmt.Sprint("constant ", v.Dtype, v.Shape, v.Scalar, v.Data), v)
}

// translateSize translates Gorgonia's sizeOp, the size of one dimension, into
// a constant: all shapes are known when the graph is compiled.
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

// copyOf adds an instruction that copies v into memory of the copy's own, and
// returns the copy.
func (b *builder) copyOf(v *Value) *Value {
	return b.add(&Value{Node: v.Node, Op: Op{Kind: Copy}, Inputs: []*Value{v}, Dtype: v.Dtype, Shape: slices.Clone(v.Shape), Scalar: v.Scalar})
}
