package executor

import (
	"fmt"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// float are the types that this package has kernels for.
type float interface{ float32 | float64 }

// memory is where a value lies. Kernels keep the pointer, so a gradient's
// place can change between runs.
type memory[T float] struct{ data []T }

// elements is how many elements a shape has; one where it has no dimensions.
func elements(s tensor.Shape) int {
	n := 1
	for _, d := range s {
		n *= d
	}
	return n
}

// view is memory as a slice of T.
func view[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// wrap makes the value of Gorgonia's that lies in memory b, row-major.
func wrap(dt tensor.Dtype, shape tensor.Shape, scalar bool, b []byte) (gorgonia.Value, error) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	switch {
	case scalar && dt == tensor.Float32:
		return (*gorgonia.F32)(p), nil
	case scalar && dt == tensor.Float64:
		return (*gorgonia.F64)(p), nil
	case scalar && dt == tensor.Int:
		return (*gorgonia.I)(p), nil
	case scalar && dt == tensor.Int64:
		return (*gorgonia.I64)(p), nil
	case scalar && dt == tensor.Int32:
		return (*gorgonia.I32)(p), nil
	case scalar && dt == tensor.Byte:
		return (*gorgonia.U8)(p), nil
	case scalar && dt == tensor.Bool:
		return (*gorgonia.B)(p), nil
	case scalar, len(shape) == 0:
		return nil, fmt.Errorf("a scalar of type %v cannot be held", dt)
	}
	backing, err := typed(dt, b)
	if err != nil {
		return nil, err
	}
	return tensor.New(tensor.WithShape(shape.Clone()...), tensor.WithBacking(backing)), nil
}

// typed is memory as the slice type that a tensor of dt is backed by.
func typed(dt tensor.Dtype, b []byte) (any, error) {
	switch dt {
	case tensor.Float32:
		return view[float32](b), nil
	case tensor.Float64:
		return view[float64](b), nil
	case tensor.Int:
		return view[int](b), nil
	case tensor.Int64:
		return view[int64](b), nil
	case tensor.Int32:
		return view[int32](b), nil
	case tensor.Byte:
		return b, nil
	case tensor.Bool:
		return view[bool](b), nil
	}
	return nil, fmt.Errorf("values of type %v cannot be held", dt)
}

// bytesOf is memory as bytes.
func bytesOf[T any](x []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(zero)))
}

// raw is the memory of v, of a scalar tensor a copy. It reports false where
// v's elements do not lie in row-major order without gaps.
func raw(v gorgonia.Value) ([]byte, bool) {
	switch v := v.(type) {
	case *gorgonia.F32:
		return bytesOf(unsafe.Slice(v, 1)), true
	case *gorgonia.F64:
		return bytesOf(unsafe.Slice(v, 1)), true
	case *gorgonia.I:
		return bytesOf(unsafe.Slice(v, 1)), true
	case *gorgonia.I64:
		return bytesOf(unsafe.Slice(v, 1)), true
	case *gorgonia.I32:
		return bytesOf(unsafe.Slice(v, 1)), true
	case *gorgonia.U8:
		return bytesOf(unsafe.Slice(v, 1)), true
	case *gorgonia.B:
		return bytesOf(unsafe.Slice(v, 1)), true
	case *tensor.Dense:
		b := backing(v)
		if b == nil || !v.IsScalar() && (v.RequiresIterator() || v.DataOrder().IsColMajor()) {
			return nil, false
		}
		n := elements(v.Shape()) * int(v.Dtype().Size())
		if n > len(b) {
			return nil, false
		}
		return b[:n], true
	}
	return nil, false
}

// backing is all memory that a tensor's strides may lead to; nil where its
// type is none that values can have here.
func backing(v *tensor.Dense) []byte {
	switch x := v.Data().(type) {
	case []float32:
		return bytesOf(x)
	case []float64:
		return bytesOf(x)
	case []int:
		return bytesOf(x)
	case []int64:
		return bytesOf(x)
	case []int32:
		return bytesOf(x)
	case []byte:
		return x
	case []bool:
		return bytesOf(x)
	case float32:
		return bytesOf([]float32{x})
	case float64:
		return bytesOf([]float64{x})
	case int:
		return bytesOf([]int{x})
	}
	return nil
}

// copyValue copies v's elements to row-major memory.
func copyValue(to []byte, v gorgonia.Value) error {
	if from, ok := raw(v); ok {
		if len(from) != len(to) {
			return fmt.Errorf("it gave %d bytes, want %d: shape %v", len(from), len(to), v.Shape())
		}
		copy(to, from)
		return nil
	}
	d, ok := v.(*tensor.Dense)
	if !ok || elements(d.Shape())*int(d.Dtype().Size()) != len(to) || len(d.Strides()) != len(d.Shape()) {
		return fmt.Errorf("it gave a %T of shape %v, want %d bytes", v, v.Shape(), len(to))
	}
	return gather(to, backing(d), int(d.Dtype().Size()), d.Shape(), d.Strides())
}

// gather follows strides, last dimension fastest.
func gather(to, from []byte, size int, shape, strides []int) error {
	index := make([]int, len(shape))
	for i := 0; i < len(to); i += size {
		at := 0
		for k, x := range index {
			at += x * strides[k] * size
		}
		if at < 0 || at+size > len(from) {
			return fmt.Errorf("it gave a tensor whose strides %v leave its memory", strides)
		}
		copy(to[i:i+size], from[at:at+size])
		for k := len(index) - 1; k >= 0; k-- {
			if index[k]++; index[k] < shape[k] {
				break
			}
			index[k] = 0
		}
	}
	return nil
}
