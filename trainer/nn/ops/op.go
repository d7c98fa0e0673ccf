package ops

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"
	"strings"
	"unsafe"

	gpu "github.com/plx-run/plx/trainer/executor/gpu/kernels"

	"github.com/chewxy/hm"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// differentiate returns the gradients of an operation's inputs x, given its
// result y and the gradient dy of the result. The gradient is nil for an input
// that has none.
type differentiate func(x gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error)

// op implements gorgonia.Op and operation.Kernel for fixed types and shapes.
// Its only state is scratch memory, so one op must not run twice at the same
// time.
type op struct {
	what  string // name with settings, such as `dropout "d1" p 0.5`; also begins the errors
	in    []operand
	out   operand
	run   kernel
	diff  differentiate  // nil if the operation is a gradient, which cannot be differentiated
	fixed int            // number of inputs without a gradient; they are the last elements of in
	rows  RowEffect      // says how the result depends on the rows of a batch
	gpu   *operation.GPU // how GPUs compute the operation; nil means that only the CPU does
}

// newOp returns an operation, without inputs and gradient, whose result has
// the given type and shape.
func newOp(what string, dtype tensor.Dtype, shape tensor.Shape, run kernel) *op {
	return &op{what: what, out: operand{dtype: dtype, shape: shape}, run: run}
}

// with sets the operation's gradient. The last `fixed` inputs have no
// gradient.
func (o *op) with(diff differentiate, fixed int) *op {
	o.diff, o.fixed = diff, fixed
	return o
}

// makes sets how the operation's result depends on the rows of a batch.
func (o *op) makes(r RowEffect) *op {
	o.rows = r
	return o
}

// on sets how GPUs compute the operation.
func (o *op) on(g *operation.GPU) *op {
	o.gpu = g
	return o
}

// GPU implements operation.OnGPU.
func (o *op) GPU() *operation.GPU { return o.gpu }

// by returns the GPU form of an operation whose GPU kernels take all its
// inputs and do not depend on whether the run is training.
func by(kernels func(t gpu.Type) (gpu.Operation, error)) *operation.GPU {
	return &operation.GPU{Kernels: func(t gpu.Type, _ bool) (gpu.Operation, error) { return kernels(t) }}
}

// typed sets the type of the result in Gorgonia's type system. It is for
// operations without inputs; for all others, apply does the same.
func (o *op) typed() *op {
	o.out = o.out.typed()
	return o
}

// operand is the type and shape of an input or of the result.
type operand struct {
	hm    hm.Type
	dtype tensor.Dtype
	shape tensor.Shape
}

// apply adds the operation to the graph that its inputs belong to.
func (o *op) apply(in ...*gorgonia.Node) (*gorgonia.Node, error) {
	return o.applyAs(o, in)
}

// applyAs is like apply, but adds the operation in the parameter as, a type
// that embeds o.
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

// Run implements operation.Kernel: it computes the result into out.
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

// Do implements gorgonia.Op: it computes the result into new memory. Only
// Gorgonia's machines call it.
func (o *op) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	size := memory.Elements(o.out.shape) * int(o.out.dtype.Size())
	out, err := memory.Wrap(o.out.dtype, o.out.shape, len(o.out.shape) == 0, memory.Aligned(size))
	if err != nil {
		return nil, err
	}
	return out, o.Run(out, inputs...)
}

// UsePreallocDo computes the result into prealloc, or into new memory if
// prealloc is not suitable.
func (o *op) UsePreallocDo(prealloc gorgonia.Value, inputs ...gorgonia.Value) (gorgonia.Value, error) {
	if prealloc == nil || !slices.Equal(prealloc.Shape(), o.out.shape) || o.out.check(prealloc) != nil || !isPlain(prealloc) {
		return o.Do(inputs...)
	}
	return prealloc, o.Run(prealloc, inputs...)
}

// Arity is the number of inputs.
func (o *op) Arity() int { return len(o.in) }

// Type returns the operation's signature in Gorgonia's type system.
func (o *op) Type() hm.Type {
	if len(o.in) == 0 {
		return o.out.hm
	}
	var all []hm.Type
	for _, x := range o.in {
		all = append(all, x.hm)
	}
	return hm.NewFnType(append(all, o.out.hm)...)
}

// InferShape returns the shape of the result. It returns an error unless the
// inputs have the shapes that the operation was built for.
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

// DiffWRT reports which inputs have a gradient. If the operation itself
// computes a gradient, DiffWRT returns true for all inputs. A second
// derivative then fails in SymDiff, instead of silently missing a term.
func (o *op) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	for i := range inputs - o.fixed {
		wrt[i] = true
	}
	return wrt
}

// SymDiff adds the gradients of the operation's inputs to the graph.
func (o *op) SymDiff(inputs gorgonia.Nodes, output, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if o.diff == nil {
		return nil, fmt.Errorf("%s: second derivatives are not supported", o.what)
	}
	if !slices.Equal(grad.Shape(), o.out.shape) {
		return nil, fmt.Errorf("%s: the gradient has shape %v, want %v", o.what, grad.Shape(), o.out.shape)
	}
	return o.diff(inputs, output, grad)
}

// ReturnsPtr, CallsExtern and OverwritesInput tell Gorgonia that the operation
// returns new memory and runs on the CPU.
func (o *op) ReturnsPtr() bool     { return false }
func (o *op) CallsExtern() bool    { return false }
func (o *op) OverwritesInput() int { return -1 }

// WriteHash writes everything that distinguishes two operations: name,
// settings, types and shapes.
func (o *op) WriteHash(h hash.Hash) {
	fmt.Fprintf(h, "plx/nn %s", o.what)
	for _, x := range append(slices.Clone(o.in), o.out) {
		fmt.Fprintf(h, ", %v %v", x.dtype, []int(x.shape))
	}
}

// Hashcode returns a 32-bit hash of the data that WriteHash writes.
func (o *op) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

func (o *op) String() string { return o.what }

// contextual is an operation whose result depends on the call: step, virtual
// worker, seed, and whether the run is training.
type contextual struct {
	*op
	stream string          // name of the operation's random stream; empty if it uses no random numbers
	call   *operation.Call // parameters of the next run, shared with the kernel
}

// Prepare implements operation.Contextual: it stores the parameters of the
// next run.
func (c *contextual) Prepare(call operation.Call) { *c.call = call }

func (c *contextual) apply(in ...*gorgonia.Node) (*gorgonia.Node, error) {
	return c.applyAs(c, in)
}

// adder adds operations to a graph. After the first error, it adds nothing
// more and keeps the error.
type adder struct {
	what  string // name of the operation whose gradients the adder adds, for names and errors
	dtype tensor.Dtype
	err   error // the first error; nil if there was none
}

// apply adds an operation to the graph and returns the result's node. After an
// error it adds nothing and returns nil.
func (b *adder) apply(o interface {
	apply(in ...*gorgonia.Node) (*gorgonia.Node, error)
}, in ...*gorgonia.Node) (n *gorgonia.Node) {
	if b.err == nil {
		n, b.err = o.apply(in...)
	}
	return n
}

// add adds an operation that computes the gradient of the input `which`.
func (b *adder) add(which string, run kernel, shape tensor.Shape, in ...*gorgonia.Node) *gorgonia.Node {
	return b.addOn(nil, which, run, shape, in...)
}

// addOn is like add, for an operation that GPUs can compute too.
func (b *adder) addOn(g *operation.GPU, which string, run kernel, shape tensor.Shape, in ...*gorgonia.Node) *gorgonia.Node {
	return b.apply(newOp("gradient of "+which+" of "+b.what, b.dtype, shape, run).on(g), in...)
}

// product adds a matrix product that computes the gradient of one input of the
// operation; which is that input's name. If x or y has more rows than p, the
// product uses only the first rows.
func (b *adder) product(which string, p product, x, y *gorgonia.Node) *gorgonia.Node {
	return b.addOn(p.gpu(false), which, choose(b.dtype, multiply[float32], multiply[float64], p), tensor.Shape{p.m, p.n}, x, y)
}

// one returns the gradient of an operation's only input, as the list that
// SymDiff must return.
func one(dx *gorgonia.Node, err error) (gorgonia.Nodes, error) {
	return gorgonia.Nodes{dx}, err
}

var errNil = errors.New("an input is nil")

// float lists the element types that the operations of this package support.
type float interface{ float32 | float64 }

// floats checks that all inputs have the same type, float32 or float64, and
// are not empty. It returns the type. Its errors begin with what.
func floats(what string, in ...*gorgonia.Node) (tensor.Dtype, error) {
	for _, n := range in {
		if n == nil {
			return tensor.Dtype{}, fmt.Errorf("%s: %w", what, errNil)
		}
	}
	dtype := in[0].Dtype()
	if dtype != tensor.Float32 && dtype != tensor.Float64 {
		return dtype, fmt.Errorf("%s: %s is %v, want float32 or float64", what, told(in[0]), dtype)
	}
	for _, n := range in {
		if n.Dtype() != dtype {
			return dtype, fmt.Errorf("%s: %s is %v and %s is %v, want one type", what, told(in[0]), dtype, told(n), n.Dtype())
		}
		for _, d := range n.Shape() {
			if d < 1 {
				return dtype, fmt.Errorf("%s: %s is empty", what, told(n))
			}
		}
	}
	return dtype, nil
}

// told describes a node in an error: by its shape, and by its name if the user
// named it.
func told(n *gorgonia.Node) string {
	shape := strings.ReplaceAll(strings.Trim(fmt.Sprint([]int(n.Shape())), "[]"), " ", ", ")
	if n.IsVar() {
		return fmt.Sprintf("%q (%s)", n.Name(), shape)
	}
	return "(" + shape + ")"
}

// typed returns x with the type that Gorgonia's type system gives values of
// this shape.
func (x operand) typed() operand {
	x.hm = hm.Type(x.dtype)
	if len(x.shape) > 0 {
		x.hm = gorgonia.TensorType{Dims: len(x.shape), Of: x.dtype}
	}
	return x
}

// check returns an error if v does not have the type and number of elements of
// x, or not enough memory for them.
func (x operand) check(v gorgonia.Value) error {
	switch v := v.(type) {
	case *gorgonia.F32, *gorgonia.F64:
	case *tensor.Dense:
		if len(v.Raw) < memory.Elements(v.Shape())*int(v.Dtype().Size()) {
			return fmt.Errorf("a value of shape %v has %d bytes of memory", v.Shape(), len(v.Raw))
		}
	default:
		return fmt.Errorf("a value is a %T, want a tensor", v)
	}
	if v.Dtype() != x.dtype || memory.Elements(v.Shape()) != memory.Elements(x.shape) {
		return fmt.Errorf("a value is %v %v, want %v %v", v.Dtype(), v.Shape(), x.dtype, x.shape)
	}
	return nil
}

// check returns an error if the values do not match the inputs and result that
// the operation was built for.
func (o *op) check(out gorgonia.Value, in []gorgonia.Value) error {
	if len(in) != len(o.in) {
		return fmt.Errorf("%s: %d inputs, want %d", o.what, len(in), len(o.in))
	}
	for i, v := range in {
		if err := o.in[i].check(v); err != nil {
			return fmt.Errorf("%s: input %d: %w", o.what, i, err)
		}
	}
	if err := o.out.check(out); err != nil {
		return fmt.Errorf("%s: result: %w", o.what, err)
	}
	if !isPlain(out) {
		return fmt.Errorf("%s: the result's memory is not row-major", o.what)
	}
	return nil
}

// plain returns the inputs in contiguous row-major order. It copies inputs in
// any other order, such as the result of a transposition.
func (o *op) plain(in []gorgonia.Value) ([]gorgonia.Value, error) {
	var copied []gorgonia.Value
	for i, v := range in {
		if isPlain(v) {
			continue
		}
		if copied == nil {
			copied = append(copied, in...)
		}
		c, err := rowMajor(v.(*tensor.Dense))
		if err != nil {
			return nil, fmt.Errorf("%s: input %d: %w", o.what, i, err)
		}
		copied[i] = c
	}
	if copied != nil {
		return copied, nil
	}
	return in, nil
}

// isPlain reports whether v's elements are contiguous in row-major order.
func isPlain(v gorgonia.Value) bool {
	d, ok := v.(*tensor.Dense)
	return !ok || !d.RequiresIterator() && !d.DataOrder().IsColMajor()
}

// rowMajor returns a contiguous row-major copy of v.
func rowMajor(v *tensor.Dense) (*tensor.Dense, error) {
	c := tensor.New(tensor.Of(v.Dtype()), tensor.WithShape(v.Shape().Clone()...))
	return c, memory.Copy(c.Raw, v)
}

// data returns the elements of v, which must be contiguous, in row-major order
// and of type T. A scalar has one element.
func data[T any](v gorgonia.Value) []T {
	switch v := v.(type) {
	case *tensor.Dense:
		return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(v.Raw))), memory.Elements(v.Shape()))
	case *gorgonia.F32:
		return unsafe.Slice((*T)(unsafe.Pointer(v)), 1)
	case *gorgonia.F64:
		return unsafe.Slice((*T)(unsafe.Pointer(v)), 1)
	}
	panic(fmt.Sprintf("ops: a value is a %T", v))
}
