package nn

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"

	"github.com/chewxy/hm"
	"github.com/plx-run/plx/trainer/executor"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// kernel computes all of out from in. Their sizes, types and order in memory
// have been checked. It allocates nothing and keeps nothing that it was given.
type kernel func(out gorgonia.Value, in []gorgonia.Value) error

// differentiate returns the gradients of the inputs, from the inputs x, the
// result y and its gradient dy; nil for an input that has none.
type differentiate func(x gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error)

// operation is a kernel and what Gorgonia wants to know about it. It fits the
// types and shapes that it was built for and no others. It has no state but
// scratch memory, so one instance must not run twice at the same time.
type operation struct {
	what  string // kind, name and settings: told in errors, and with the shapes the identity
	in    []operand
	out   operand
	run   kernel
	diff  differentiate // nil: the operation is a gradient itself
	fixed int           // how many of the last inputs have no gradient
}

// operand is the type of an input or of the result.
type operand struct {
	hm    hm.Type
	dtype tensor.Dtype
	shape tensor.Shape
}

// apply adds the operation to the graph of its inputs.
func (o *operation) apply(in ...*gorgonia.Node) (*gorgonia.Node, error) {
	return o.applyAs(o, in)
}

// applyAs adds as, which embeds o.
func (o *operation) applyAs(as gorgonia.Op, in []*gorgonia.Node) (*gorgonia.Node, error) {
	o.in = o.in[:0]
	for _, n := range in {
		o.in = append(o.in, operand{hm: n.Type(), dtype: n.Dtype(), shape: n.Shape()})
	}
	o.out.hm = hm.Type(o.out.dtype)
	if len(o.out.shape) > 0 {
		o.out.hm = gorgonia.TensorType{Dims: len(o.out.shape), Of: o.out.dtype}
	}
	y, err := gorgonia.ApplyOp(as, in...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.what, err)
	}
	return y, nil
}

// Run computes into out, as package executor wants it.
func (o *operation) Run(out gorgonia.Value, inputs ...gorgonia.Value) error {
	if err := o.check(out, inputs); err != nil {
		return err
	}
	inputs, err := o.plain(inputs)
	if err != nil {
		return err
	}
	if err := o.run(out, inputs); err != nil {
		return fmt.Errorf("%s: %w", o.what, err)
	}
	return nil
}

// Do computes into memory of its own, as Gorgonia's machines want it.
func (o *operation) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	out := o.out.zero()
	return out, o.Run(out, inputs...)
}

// UsePreallocDo computes into prealloc where that fits.
func (o *operation) UsePreallocDo(prealloc gorgonia.Value, inputs ...gorgonia.Value) (gorgonia.Value, error) {
	if prealloc == nil || !slices.Equal(prealloc.Shape(), o.out.shape) || o.out.check(prealloc) != nil || !isPlain(prealloc) {
		return o.Do(inputs...)
	}
	return prealloc, o.Run(prealloc, inputs...)
}

// Arity is the number of inputs.
func (o *operation) Arity() int { return len(o.in) }

// Type is the operation's signature.
func (o *operation) Type() hm.Type {
	var all []hm.Type
	for _, x := range o.in {
		all = append(all, x.hm)
	}
	return hm.NewFnType(append(all, o.out.hm)...)
}

// InferShape returns the shape of the result for the shapes that the
// operation was built for.
func (o *operation) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	if len(in) != len(o.in) {
		return nil, fmt.Errorf("%s: %d inputs, want %d", o.what, len(in), len(o.in))
	}
	for i, s := range in {
		if got, ok := s.(tensor.Shape); !ok || !slices.Equal(got, o.in[i].shape) {
			return nil, fmt.Errorf("%s: input %d is %v, want %v", o.what, i, s, o.in[i].shape)
		}
	}
	return o.out.shape.Clone(), nil
}

// DiffWRT says which inputs have a gradient. The inputs of an operation that
// is a gradient count as having one, so that differentiating twice is an
// error of SymDiff and not a gradient without that part.
func (o *operation) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	for i := range inputs - o.fixed {
		wrt[i] = true
	}
	return wrt
}

// SymDiff adds the gradients of the inputs to the graph.
func (o *operation) SymDiff(inputs gorgonia.Nodes, output, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if o.diff == nil {
		return nil, fmt.Errorf("%s: second derivatives are not supported", o.what)
	}
	if !slices.Equal(grad.Shape(), o.out.shape) {
		return nil, fmt.Errorf("%s: the gradient has shape %v, want %v", o.what, grad.Shape(), o.out.shape)
	}
	return o.diff(inputs, output, grad)
}

// ReturnsPtr, CallsExtern and OverwritesInput: the result is new memory, on
// the CPU.
func (o *operation) ReturnsPtr() bool     { return false }
func (o *operation) CallsExtern() bool    { return false }
func (o *operation) OverwritesInput() int { return -1 }

// WriteHash writes what tells two operations apart.
func (o *operation) WriteHash(h hash.Hash) {
	fmt.Fprintf(h, "plx/nn %s", o.what)
	for _, x := range append(slices.Clone(o.in), o.out) {
		fmt.Fprintf(h, ", %v %v", x.dtype, []int(x.shape))
	}
}

// Hashcode is the hash of what WriteHash writes.
func (o *operation) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

func (o *operation) String() string { return o.what }

// contextual is an operation that computes otherwise from call to call.
type contextual struct {
	*operation
	stream string         // the random numbers that it draws; empty for none
	call   *executor.Call // shared with its kernel
}

// Prepare keeps the call of the runs to come.
func (c *contextual) Prepare(call executor.Call) { *c.call = call }

func (c *contextual) apply(in ...*gorgonia.Node) (*gorgonia.Node, error) {
	return c.applyAs(c, in)
}

// one is the answer of an operation with one gradient.
func one(dx *gorgonia.Node, err error) (gorgonia.Nodes, error) {
	return gorgonia.Nodes{dx}, err
}

var errNil = errors.New("an input is nil")
