package executor

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// vertex is a value of the program: a leaf, or what an instruction computes.
type vertex struct {
	id     int
	of     *gorgonia.Node // the first vertex of the graph that it stands for
	op     operation
	inputs []*vertex
	dtype  tensor.Dtype
	shape  tensor.Shape
	scalar bool // Gorgonia holds it as a scalar value, not a tensor

	root     *vertex // whose memory it lies in; itself unless an alias
	leaf     int     // of an input or fixed value: which
	gradient int     // which gradient's memory it lies in; -1 for none
	constant bool    // known before the first run
	bytes    []byte  // of a root, once planned
	cell     any     // of a root of floats: *memory[T]

	position  int // of what is computed: which instruction
	last      int // of a root: the last instruction that reads or writes it
	pinned    bool
	offset    int  // of a planned root: where in the arena
	planned   bool // in the arena
	scheduled bool
	stamp     int // of the estimate that counted it last
}

// size is the number of elements, length that of bytes.
func (v *vertex) size() int   { return elements(v.shape) }
func (v *vertex) length() int { return v.size() * int(v.dtype.Size()) }

// computed tells whether an instruction writes v.
func (v *vertex) computed() bool {
	return !v.constant && v.op.kind != kindInput && v.op.kind != kindFixed && v.op.kind != kindConstant && v.op.kind != kindAlias
}

// label names v in errors.
func (v *vertex) label() string { return label(v.of) }

// builder translates the part of a graph that is wanted.
type builder struct {
	plan     Plan
	roles    map[*gorgonia.Node]operation
	leaf     map[*gorgonia.Node]int
	seen     map[*gorgonia.Node]*vertex
	merged   map[string]*vertex
	vertices []*vertex // inputs before what is computed from them
}

func newBuilder(p Plan) *builder {
	b := &builder{plan: p, roles: map[*gorgonia.Node]operation{}, leaf: map[*gorgonia.Node]int{},
		seen: map[*gorgonia.Node]*vertex{}, merged: map[string]*vertex{}}
	for i, n := range p.Inputs {
		b.roles[n], b.leaf[n] = operation{kind: kindInput}, i
	}
	for i, n := range p.Fixed {
		b.roles[n], b.leaf[n] = operation{kind: kindFixed}, i
	}
	return b
}

// vertex translates n and what it is computed from.
func (b *builder) vertex(n *gorgonia.Node) (*vertex, error) {
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

func (b *builder) translate(n *gorgonia.Node) (*vertex, error) {
	if n.Op() == nil || n.Value() != nil && isConstant(n) {
		return b.translateLeaf(n)
	}
	op, err := decode(n.Op())
	if err != nil {
		return nil, err
	}
	below, err := children(n)
	if err != nil {
		return nil, err
	}
	if name, _, _ := fields(n.Op()); name == "sizeOp" {
		return b.translateSize(n, below)
	}
	inputs := make([]*vertex, len(below))
	for i, c := range below {
		if inputs[i], err = b.vertex(c); err != nil {
			return nil, err
		}
	}
	if op.kind == kindOther {
		if op.plain, err = vet(n); err != nil {
			return nil, err
		}
	}
	v := b.make(n, op, inputs)
	if err := simplify(v); err != nil {
		return nil, fmt.Errorf("%s: %w", v.label(), err)
	}
	return b.merge(v), nil
}

func (b *builder) make(n *gorgonia.Node, op operation, inputs []*vertex) *vertex {
	v := &vertex{of: n, op: op, inputs: inputs, dtype: n.Dtype(), shape: n.Shape(), scalar: n.IsScalar(), gradient: -1}
	if v.scalar {
		v.shape = tensor.Shape{}
	}
	v.root = v
	return v
}

// merge returns the vertex that does the same as v, which may be v.
func (b *builder) merge(v *vertex) *vertex {
	if v.op.mergeable() {
		key := fmt.Sprint(v.op.text(), v.dtype, v.shape, v.scalar)
		for _, in := range v.inputs {
			key += fmt.Sprintf(" %d", in.id)
		}
		if same := b.merged[key]; same != nil {
			return same
		}
		b.merged[key] = v
	}
	b.add(v)
	return v
}

func (b *builder) add(v *vertex) {
	v.id = len(b.vertices)
	b.vertices = append(b.vertices, v)
	if v.op.kind == kindAlias {
		v.root = v.inputs[0].root
	}
}

// translateLeaf takes an input, a fixed value, or a constant. A leaf that is
// neither of the first two but has a value keeps the one that it has now.
func (b *builder) translateLeaf(n *gorgonia.Node) (*vertex, error) {
	op, known := b.roles[n]
	if known {
		v := b.make(n, op, nil)
		v.leaf = b.leaf[n]
		b.add(v)
		return v, nil
	}
	if n.Value() == nil {
		return nil, fmt.Errorf("%s has no value: list it in Plan.Inputs or give it one", label(n))
	}
	v := b.make(n, operation{kind: kindConstant}, nil)
	v.constant, v.bytes = true, make([]byte, v.length(), v.length()+8)
	if err := copyValue(v.bytes, n.Value()); err != nil {
		return nil, fmt.Errorf("constant %s: %w", label(n), err)
	}
	return b.mergeConstant(v), nil
}

// mergeConstant compares what small constants hold.
func (b *builder) mergeConstant(v *vertex) *vertex {
	if len(v.bytes) <= 4096 {
		key := fmt.Sprint("constant ", v.dtype, v.shape, v.scalar, v.bytes)
		if same := b.merged[key]; same != nil {
			return same
		}
		b.merged[key] = v
	}
	b.add(v)
	return v
}

// translateSize evaluates the size of a dimension, which is known already.
func (b *builder) translateSize(n *gorgonia.Node, below []*gorgonia.Node) (*vertex, error) {
	_, f, _ := fields(n.Op())
	size, axis := 1, int(f[0].Int())
	if s := below[0].Shape(); !below[0].IsScalar() {
		if axis >= len(s) {
			return nil, fmt.Errorf("%s: there is no dimension %d in %v", label(n), axis, s)
		}
		size = s[axis]
	}
	v := b.make(n, operation{kind: kindConstant}, nil)
	v.constant, v.bytes = true, make([]byte, v.length())
	switch v.dtype {
	case tensor.Float32:
		view[float32](v.bytes)[0] = float32(size)
	case tensor.Float64:
		view[float64](v.bytes)[0] = float64(size)
	case tensor.Int:
		view[int](v.bytes)[0] = size
	default:
		return nil, fmt.Errorf("%s: a size of type %v is not known", label(n), v.dtype)
	}
	return b.mergeConstant(v), nil
}

func isConstant(n *gorgonia.Node) bool {
	name, _, _ := fields(n.Op())
	return name == "constantScalar" || name == "constantTensor"
}

// copyOf adds a copy of v under memory of its own.
func (b *builder) copyOf(v *vertex) *vertex {
	c := b.make(v.of, operation{kind: kindCopy}, []*vertex{v})
	c.dtype, c.shape, c.scalar = v.dtype, slices.Clone(v.shape), v.scalar
	b.add(c)
	return c
}
