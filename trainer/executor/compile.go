package executor

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// largestFolded is the size in bytes up to which a value that depends on
// constants only is computed once and kept.
const largestFolded = 4 << 20

// Compile makes a program for what p wants of g. It adds the gradients to g.
//
// It returns an error that names the vertex for an operation that is refused,
// a leaf without a value, a gradient that does not exist, and shapes that do
// not go together.
func Compile(g *gorgonia.ExprGraph, p Plan) (program *Program, err error) {
	defer func() {
		if r := recover(); r != nil {
			program, err = nil, fmt.Errorf("compile the graph: %v", r)
		}
	}()
	if err := p.check(g); err != nil {
		return nil, fmt.Errorf("compile the graph: %w", err)
	}
	grads, err := p.differentiate(g)
	if err != nil {
		return nil, fmt.Errorf("compile the graph: %w", err)
	}
	c := &compiler{plan: p, builder: newBuilder(p), lib: gorgonia.WhichBLAS()}
	if err := c.compile(grads); err != nil {
		return nil, fmt.Errorf("compile the graph: %w", err)
	}
	return c.program, nil
}

type compiler struct {
	plan    Plan
	builder *builder
	lib     gorgonia.BLAS
	wanted  wanted
	order   []*vertex
	program *Program
}

func (c *compiler) compile(grads gorgonia.Nodes) error {
	if err := c.translate(grads); err != nil {
		return err
	}
	if err := c.bindLeaves(); err != nil {
		return err
	}
	if err := c.fold(); err != nil {
		return err
	}
	c.direct()
	c.order = c.wanted.order()
	for _, o := range c.wanted.outputs {
		o.root.pinned = true
	}
	lifetimes(c.order)
	for _, o := range c.wanted.outputs {
		o.root.last = math.MaxInt
	}
	joinInPlace(c.order)
	arena := aligned(place(c.order))
	for _, v := range c.order {
		if v.planned {
			v.takeFrom(arena)
		}
	}
	return c.assemble(len(arena))
}

// translate builds the vertices of all that is wanted.
func (c *compiler) translate(grads gorgonia.Nodes) error {
	for i, n := range grads {
		v, err := c.builder.vertex(n)
		if err != nil {
			return err
		}
		variable, err := c.builder.vertex(c.plan.Differentiate[i])
		if err != nil {
			return err
		}
		if v.size() != variable.size() || v.dtype != variable.dtype {
			return fmt.Errorf("the gradient of %s has shape %v and type %v", variable.label(), v.shape, v.dtype)
		}
		c.wanted.gradients = append(c.wanted.gradients, v)
		c.wanted.variables = append(c.wanted.variables, variable)
	}
	outputs := c.plan.Outputs
	if c.plan.Loss != nil {
		outputs = append(append(gorgonia.Nodes{}, outputs...), c.plan.Loss)
	}
	for _, n := range outputs {
		v, err := c.builder.vertex(n)
		if err != nil {
			return err
		}
		if !v.root.computed() {
			v = c.builder.copyOf(v)
		}
		c.wanted.outputs = append(c.wanted.outputs, v)
	}
	// Leaves that nothing is computed from are fed all the same.
	for _, n := range append(append(gorgonia.Nodes{}, c.plan.Inputs...), c.plan.Fixed...) {
		if _, err := c.builder.vertex(n); err != nil {
			return err
		}
	}
	return nil
}

// bindLeaves gives inputs memory and finds that of fixed values.
func (c *compiler) bindLeaves() error {
	c.program = &Program{inputs: make([]*tensor.Dense, len(c.plan.Inputs))}
	for _, v := range c.builder.vertices {
		switch v.op.kind {
		case kindInput:
			if v.scalar {
				return fmt.Errorf("input %s is a scalar: give it the shape (1)", v.label())
			}
			v.bytes = aligned(v.length())
			value, err := wrap(v.dtype, v.shape, false, v.bytes)
			if err != nil {
				return fmt.Errorf("input %s: %w", v.label(), err)
			}
			c.program.inputs[v.leaf] = value.(*tensor.Dense)
		case kindFixed:
			value := c.plan.FixedValues[v.leaf]
			if value == nil || value.Dtype() != v.dtype {
				return fmt.Errorf("the value of %s is of another type", v.label())
			}
			b, plain := raw(value)
			if d, ok := value.(*tensor.Dense); !plain || len(b) != v.length() || ok && d.IsScalar() {
				return fmt.Errorf("the value of %s has shape %v: want its own, row-major", v.label(), value.Shape())
			}
			v.bytes = b
		}
	}
	return nil
}

// fold computes what depends on constants only.
func (c *compiler) fold() error {
	for _, v := range c.builder.vertices {
		if v.constant || len(v.inputs) == 0 || v.length() > largestFolded || !v.op.mergeable() {
			continue
		}
		known := true
		for _, in := range v.inputs {
			known = known && in.constant
		}
		if !known {
			continue
		}
		if v.op.kind != kindAlias {
			v.bytes = aligned(v.length())
			if err := c.once(v); err != nil {
				return err
			}
		}
		v.constant = true
	}
	return nil
}

// once computes v now.
func (c *compiler) once(v *vertex) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %v", v.label(), r)
		}
	}()
	k, err := newKernel(v, c.lib)
	if err != nil {
		return err
	}
	if err := k.run(); err != nil {
		return fmt.Errorf("%s: %w", v.label(), err)
	}
	return nil
}

// direct lets gradients be computed right where the caller wants them. One
// that is read by others, or is wanted twice, or is written by an operation
// that keeps hold of its memory, is copied.
func (c *compiler) direct() {
	live := map[*vertex]bool{}
	for _, v := range append(append([]*vertex{}, c.wanted.gradients...), c.wanted.outputs...) {
		mark(v, live)
	}
	uses := map[*vertex]int{} // by root, aliases aside
	for v := range live {
		if v.computed() {
			for _, in := range v.inputs {
				uses[in.root]++
			}
		}
	}
	for _, v := range append(append([]*vertex{}, c.wanted.gradients...), c.wanted.outputs...) {
		uses[v.root]++
	}
	for i, g := range c.wanted.gradients {
		if r := g.root; !r.computed() || uses[r] > 1 || r.op.kind == kindOther {
			g = c.builder.copyOf(g)
			c.wanted.gradients[i] = g
		}
		g.root.gradient = i
	}
}
