package nn

import (
	"fmt"
	"strings"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// float are the types that this package computes with.
type float interface{ float32 | float64 }

// choose returns the kernel for a type of float.
func choose[P any](dtype tensor.Dtype, f32, f64 func(P) kernel, parameters P) kernel {
	if dtype == tensor.Float32 {
		return f32(parameters)
	}
	return f64(parameters)
}

// floats wants all of in to be of one type, float32 or float64, without an
// axis of length 0. Errors begin with what.
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

// told names a vertex in an error: its shape, and its name if the user gave
// it one.
func told(n *gorgonia.Node) string {
	shape := strings.ReplaceAll(strings.Trim(fmt.Sprint([]int(n.Shape())), "[]"), " ", ", ")
	if n.IsVar() {
		return fmt.Sprintf("%q (%s)", n.Name(), shape)
	}
	return "(" + shape + ")"
}

// zero is a new value.
func (x operand) zero() gorgonia.Value {
	switch {
	case len(x.shape) > 0:
		return tensor.New(tensor.Of(x.dtype), tensor.WithShape(x.shape.Clone()...))
	case x.dtype == tensor.Float32:
		return gorgonia.NewF32(0)
	}
	return gorgonia.NewF64(0)
}

// check wants v to have x's type and number of elements.
func (x operand) check(v gorgonia.Value) error {
	switch v := v.(type) {
	case *gorgonia.F32, *gorgonia.F64:
	case *tensor.Dense:
		if len(v.Raw) < elements(v.Shape())*int(v.Dtype().Size()) {
			return fmt.Errorf("a value of shape %v has %d bytes of memory", v.Shape(), len(v.Raw))
		}
	default:
		return fmt.Errorf("a value is a %T, want a tensor", v)
	}
	if v.Dtype() != x.dtype || elements(v.Shape()) != elements(x.shape) {
		return fmt.Errorf("a value is %v %v, want %v %v", v.Dtype(), v.Shape(), x.dtype, x.shape)
	}
	return nil
}

// check wants values that fit the operation.
func (o *operation) check(out gorgonia.Value, in []gorgonia.Value) error {
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

// plain returns the inputs with row-major memory. It copies those that have
// none, such as the result of a transposition.
func (o *operation) plain(in []gorgonia.Value) ([]gorgonia.Value, error) {
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

// isPlain says whether v's elements lie in row-major order without gaps.
func isPlain(v gorgonia.Value) bool {
	d, ok := v.(*tensor.Dense)
	return !ok || !d.RequiresIterator() && !d.DataOrder().IsColMajor()
}

// rowMajor copies v, following its strides.
func rowMajor(v *tensor.Dense) (*tensor.Dense, error) {
	shape, strides := v.Shape(), v.Strides()
	if len(strides) != len(shape) {
		return nil, fmt.Errorf("cannot read a tensor of shape %v with strides %v", shape, strides)
	}
	c := tensor.New(tensor.Of(v.Dtype()), tensor.WithShape(shape.Clone()...))
	size := v.Dtype().Size()
	from, to := v.Raw, c.Raw
	index := make([]int, len(shape))
	for i := range elements(shape) {
		at := 0
		for d, k := range index {
			at += k * strides[d]
		}
		copy(to[uintptr(i)*size:][:size], from[uintptr(at)*size:])
		for d := len(index) - 1; d >= 0; d-- {
			if index[d]++; index[d] < shape[d] {
				break
			}
			index[d] = 0
		}
	}
	return c, nil
}

// data is the memory of v, which is row-major and of type T. A scalar has one
// element.
func data[T any](v gorgonia.Value) []T {
	switch v := v.(type) {
	case *tensor.Dense:
		return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(v.Raw))), elements(v.Shape()))
	case *gorgonia.F32:
		return unsafe.Slice((*T)(unsafe.Pointer(v)), 1)
	case *gorgonia.F64:
		return unsafe.Slice((*T)(unsafe.Pointer(v)), 1)
	}
	panic(fmt.Sprintf("nn: a value is a %T", v))
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// as is x for a caller that knows that its types are the same.
func as[To, From float](x []From) []To {
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// pick is choose for a kernel without parameters.
func pick(dtype tensor.Dtype, f32, f64 kernel) kernel {
	if dtype == tensor.Float32 {
		return f32
	}
	return f64
}
