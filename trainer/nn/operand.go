package nn

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/chewxy/hm"
	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// float are the types that this package computes with.
type float interface{ float32 | float64 }

// choose returns the kernel for one of the two types.
func choose[P any](dtype tensor.Dtype, f32, f64 func(P) kernel, parameters P) kernel {
	if dtype == tensor.Float32 {
		return f32(parameters)
	}
	return f64(parameters)
}

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

// zero returns a new value.
func (x operand) zero() gorgonia.Value {
	switch {
	case len(x.shape) > 0:
		return tensor.New(tensor.Of(x.dtype), tensor.WithShape(x.shape.Clone()...))
	case x.dtype == tensor.Float32:
		return gorgonia.NewF32(0)
	}
	return gorgonia.NewF64(0)
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
	panic(fmt.Sprintf("nn: a value is a %T", v))
}

// pick is choose for kernels without parameters.
func pick(dtype tensor.Dtype, f32, f64 kernel) kernel {
	if dtype == tensor.Float32 {
		return f32
	}
	return f64
}
