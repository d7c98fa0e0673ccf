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

// differentiate returns the gradients of the inputs x, given the result y and
// its gradient dy. It returns nil for an input without a gradient.
type differentiate func(x gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error)

// op implements gorgonia.Op and operation.Kernel. It fits only the types and
// shapes that it was built for. It has no state but scratch memory, so one
// instance must not run twice at the same time.
type op struct {
	what  string // kind, name and settings; begins errors, and identifies the operation together with the shapes
	in    []operand
	out   operand
	run   kernel
	diff  differentiate  // nil if the operation is itself a gradient
	fixed int            // number of last inputs without a gradient
	rows  RowEffect      // what becomes of the rows of a batch
	gpu   *operation.GPU // how GPUs compute it; nil means that only run does
}

// newOp returns an operation whose result has the given type and shape.
func newOp(what string, dtype tensor.Dtype, shape tensor.Shape, run kernel) *op {
	return &op{what: what, out: operand{dtype: dtype, shape: shape}, run: run}
}

// with gives the operation gradients; the last inputs, fixed in number, have
// none.
func (o *op) with(diff differentiate, fixed int) *op {
	o.diff, o.fixed = diff, fixed
	return o
}

// makes says what the operation makes of the rows of a batch.
func (o *op) makes(r RowEffect) *op {
	o.rows = r
	return o
}

// on says how GPUs compute the operation.
func (o *op) on(g *operation.GPU) *op {
	o.gpu = g
	return o
}

// GPU implements operation.OnGPU.
func (o *op) GPU() *operation.GPU { return o.gpu }

// by is how GPUs compute an operation whose kernels take all its inputs.
func by(kernels func(t gpu.Type) (gpu.Operation, error)) *operation.GPU {
	return &operation.GPU{Kernels: func(t gpu.Type, _ bool) (gpu.Operation, error) { return kernels(t) }}
}

// typed gives the result its type. Operations with inputs get it when they are applied.
func (o *op) typed() *op {
	o.out = o.out.typed()
	return o
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
	size := memory.Elements(o.out.shape) * int(o.out.dtype.Size())
	out, err := memory.Wrap(o.out.dtype, o.out.shape, len(o.out.shape) == 0, memory.Aligned(size))
	if err != nil {
		return nil, err
	}
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
	if len(o.in) == 0 {
		return o.out.hm
	}
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

// adder adds operations to a graph. After the first error it adds nothing more.
type adder struct {
	what  string // name of the operation whose gradients are added
	dtype tensor.Dtype
	err   error // the first error; nil means none
}

// apply adds an operation.
func (b *adder) apply(o interface {
	apply(in ...*gorgonia.Node) (*gorgonia.Node, error)
}, in ...*gorgonia.Node) (n *gorgonia.Node) {
	if b.err == nil {
		n, b.err = o.apply(in...)
	}
	return n
}

// add adds an operation of a gradient.
func (b *adder) add(which string, run kernel, shape tensor.Shape, in ...*gorgonia.Node) *gorgonia.Node {
	return b.addOn(nil, which, run, shape, in...)
}

// addOn is add for an operation that GPUs compute too.
func (b *adder) addOn(g *operation.GPU, which string, run kernel, shape tensor.Shape, in ...*gorgonia.Node) *gorgonia.Node {
	return b.apply(newOp("gradient of "+which+" of "+b.what, b.dtype, shape, run).on(g), in...)
}

// product uses only the first rows of its inputs if they have more.
func (b *adder) product(which string, p product, x, y *gorgonia.Node) *gorgonia.Node {
	return b.addOn(p.gpu(false), which, choose(b.dtype, multiply[float32], multiply[float64], p), tensor.Shape{p.m, p.n}, x, y)
}

// one returns the gradient of an operation with one input.
func one(dx *gorgonia.Node, err error) (gorgonia.Nodes, error) {
	return gorgonia.Nodes{dx}, err
}

var errNil = errors.New("an input is nil")

// float are the types that this package computes with.
type float interface{ float32 | float64 }

// floats checks that all inputs have one type, float32 or float64, and no axis
// of length 0. Errors begin with what.
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

// told names a vertex in an error: by its shape, and by its name if the user
// gave it one.
func told(n *gorgonia.Node) string {
	shape := strings.ReplaceAll(strings.Trim(fmt.Sprint([]int(n.Shape())), "[]"), " ", ", ")
	if n.IsVar() {
		return fmt.Sprintf("%q (%s)", n.Name(), shape)
	}
	return "(" + shape + ")"
}

// typed returns x with the type that Gorgonia gives such a value.
func (x operand) typed() operand {
	x.hm = hm.Type(x.dtype)
	if len(x.shape) > 0 {
		x.hm = gorgonia.TensorType{Dims: len(x.shape), Of: x.dtype}
	}
	return x
}

// check reports a value that has another type or number of elements than x.
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

// check reports values that do not fit the operation.
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

// plain returns the inputs in row-major memory. It copies inputs that are not,
// such as the result of a transposition.
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

// isPlain reports whether v's elements lie in row-major order without gaps.
func isPlain(v gorgonia.Value) bool {
	d, ok := v.(*tensor.Dense)
	return !ok || !d.RequiresIterator() && !d.DataOrder().IsColMajor()
}

// rowMajor copies v, following its strides.
func rowMajor(v *tensor.Dense) (*tensor.Dense, error) {
	c := tensor.New(tensor.Of(v.Dtype()), tensor.WithShape(v.Shape().Clone()...))
	return c, memory.Copy(c.Raw, v)
}

// data returns the memory of v, which is row-major and of type T. A scalar has
// one element.
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
