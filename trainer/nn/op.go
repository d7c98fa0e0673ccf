package nn

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"

	"github.com/chewxy/hm"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// kernel computes all of out from in. The caller has checked their sizes, types
// and order in memory. A kernel allocates nothing and keeps none of its
// arguments.
type kernel func(out gorgonia.Value, in []gorgonia.Value) error

// differentiate returns the gradients of the inputs x, given the result y and
// its gradient dy. It returns nil for an input without a gradient.
type differentiate func(x gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error)

// op implements gorgonia.Op and operation.Kernel. It fits only the types and
// shapes that it was built for. It has no state but scratch memory, so one
// instance must not run twice at the same time.
type op struct {
	what  string // kind, name and settings; errors begin with it, and with the shapes it identifies the operation
	in    []operand
	out   operand
	run   kernel
	diff  differentiate // nil if the operation is itself a gradient
	fixed int           // number of last inputs without a gradient
}

// operand is the type of an input or of the result.
type operand struct {
	hm    hm.Type
	dtype tensor.Dtype
	shape tensor.Shape
}

// apply adds the operation to the graph of its inputs.
func (o *op) apply(in ...*gorgonia.Node) (*gorgonia.Node, error) {
	return o.applyAs(o, in)
}

// applyAs adds the operation as, which embeds o.
func (o *op) applyAs(as gorgonia.Op, in []*gorgonia.Node) (*gorgonia.Node, error) {
	o.in = o.in[:0]
	for _, n := range in {
		o.in = append(o.in, operand{hm: n.Type(), dtype: n.Dtype(), shape: n.Shape()})
	}
	o.out = o.out.typed()
	y, err := gorgonia.ApplyOp(as, in...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.what, err)
	}
	return y, nil
}

// Run computes into out; it implements operation.Kernel.
func (o *op) Run(out gorgonia.Value, inputs ...gorgonia.Value) error {
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

// Do computes into new memory, for Gorgonia's machines.
func (o *op) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	out := o.out.zero()
	return out, o.Run(out, inputs...)
}

// UsePreallocDo computes into prealloc if it fits.
func (o *op) UsePreallocDo(prealloc gorgonia.Value, inputs ...gorgonia.Value) (gorgonia.Value, error) {
	if prealloc == nil || !slices.Equal(prealloc.Shape(), o.out.shape) || o.out.check(prealloc) != nil || !isPlain(prealloc) {
		return o.Do(inputs...)
	}
	return prealloc, o.Run(prealloc, inputs...)
}

// Arity is the number of inputs.
func (o *op) Arity() int { return len(o.in) }

// Type is the operation's signature.
func (o *op) Type() hm.Type {
	var all []hm.Type
	for _, x := range o.in {
		all = append(all, x.hm)
	}
	return hm.NewFnType(append(all, o.out.hm)...)
}

// InferShape returns the shape of the result. It refuses other shapes than
// those that the operation was built for.
func (o *op) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
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

// DiffWRT reports which inputs have a gradient. It claims that all inputs of a
// gradient have one. So differentiating twice is an error of SymDiff, and not a
// gradient with a part missing.
func (o *op) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	for i := range inputs - o.fixed {
		wrt[i] = true
	}
	return wrt
}

// SymDiff adds the gradients of the inputs to the graph.
func (o *op) SymDiff(inputs gorgonia.Nodes, output, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if o.diff == nil {
		return nil, fmt.Errorf("%s: second derivatives are not supported", o.what)
	}
	if !slices.Equal(grad.Shape(), o.out.shape) {
		return nil, fmt.Errorf("%s: the gradient has shape %v, want %v", o.what, grad.Shape(), o.out.shape)
	}
	return o.diff(inputs, output, grad)
}

// ReturnsPtr, CallsExtern and OverwritesInput say that the result is new
// memory, on the CPU.
func (o *op) ReturnsPtr() bool     { return false }
func (o *op) CallsExtern() bool    { return false }
func (o *op) OverwritesInput() int { return -1 }

// WriteHash writes everything that tells two operations apart.
func (o *op) WriteHash(h hash.Hash) {
	fmt.Fprintf(h, "plx/nn %s", o.what)
	for _, x := range append(slices.Clone(o.in), o.out) {
		fmt.Fprintf(h, ", %v %v", x.dtype, []int(x.shape))
	}
}

// Hashcode is the hash of what WriteHash writes.
func (o *op) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

func (o *op) String() string { return o.what }

// contextual is an operation that depends on the call.
type contextual struct {
	*op
	stream string          // name of the stream of random numbers; empty for none
	call   *operation.Call // the kernel reads it
}

// Prepare stores the call for the next runs.
func (c *contextual) Prepare(call operation.Call) { *c.call = call }

func (c *contextual) apply(in ...*gorgonia.Node) (*gorgonia.Node, error) {
	return c.applyAs(c, in)
}

// adder adds the operations of a gradient to a graph. After the first error it
// adds nothing more.
type adder struct {
	what  string
	dtype tensor.Dtype
	err   error
}

func (b *adder) add(which string, run kernel, shape tensor.Shape, in ...*gorgonia.Node) (n *gorgonia.Node) {
	if b.err == nil {
		o := &op{what: "gradient of " + which + " of " + b.what, out: operand{dtype: b.dtype, shape: shape}, run: run}
		n, b.err = o.apply(in...)
	}
	return n
}

// product uses only the first rows of its inputs if they have more.
func (b *adder) product(which string, p product, x, y *gorgonia.Node) *gorgonia.Node {
	return b.add(which, choose(b.dtype, multiply[float32], multiply[float64], p), tensor.Shape{p.m, p.n}, x, y)
}

// one returns the gradient of an operation with one input.
func one(dx *gorgonia.Node, err error) (gorgonia.Nodes, error) {
	return gorgonia.Nodes{dx}, err
}

var errNil = errors.New("an input is nil")
