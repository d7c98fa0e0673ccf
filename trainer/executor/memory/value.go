// Package memory turns Gorgonia's values into row-major bytes and back.
//
//	b := memory.Aligned(6 * 4)
//	value, err := memory.Wrap(tensor.Float32, tensor.Shape{2, 3}, false, b)
//	numbers := memory.View[float32](b) // the same memory
//
// It takes scalars and dense tensors of float32, float64, int, int32, int64,
// byte and bool. It refuses every other type.
package memory

import (
	"fmt"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Alignment is the alignment in bytes of planned values: a cache line.
const Alignment = 64

// Elements returns the number of elements of a shape. A shape without
// dimensions has one element.
func Elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Aligned allocates n bytes that begin at a multiple of Alignment.
func Aligned(n int) []byte {
	b := Bytes(make([]uint64, (n+Alignment)/8+1))
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % Alignment)
	return b[skip : skip+n : skip+n]
}

// View returns the same memory as a slice of T.
func View[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// Bytes returns the same memory as bytes.
func Bytes[T any](x []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(zero)))
}

// Wrap returns the Gorgonia value that lies in memory b, row-major.
func Wrap(dt tensor.Dtype, shape tensor.Shape, scalar bool, b []byte) (gorgonia.Value, error) {
	if scalar || len(shape) == 0 {
		return wrapScalar(dt, scalar, unsafe.Pointer(unsafe.SliceData(b)))
	}
	var backing any
	switch dt {
	case tensor.Float32:
		backing = View[float32](b)
	case tensor.Float64:
		backing = View[float64](b)
	case tensor.Int:
		backing = View[int](b)
	case tensor.Int64:
		backing = View[int64](b)
	case tensor.Int32:
		backing = View[int32](b)
	case tensor.Byte:
		backing = b
	case tensor.Bool:
		backing = View[bool](b)
	default:
		return nil, fmt.Errorf("values of type %v are not supported", dt)
	}
	return tensor.New(tensor.WithShape(shape.Clone()...), tensor.WithBacking(backing)), nil
}

func wrapScalar(dt tensor.Dtype, scalar bool, p unsafe.Pointer) (gorgonia.Value, error) {
	switch {
	case !scalar: // a tensor without dimensions
	case dt == tensor.Float32:
		return (*gorgonia.F32)(p), nil
	case dt == tensor.Float64:
		return (*gorgonia.F64)(p), nil
	case dt == tensor.Int:
		return (*gorgonia.I)(p), nil
	case dt == tensor.Int64:
		return (*gorgonia.I64)(p), nil
	case dt == tensor.Int32:
		return (*gorgonia.I32)(p), nil
	case dt == tensor.Byte:
		return (*gorgonia.U8)(p), nil
	case dt == tensor.Bool:
		return (*gorgonia.B)(p), nil
	}
	return nil, fmt.Errorf("scalars of type %v are not supported", dt)
}

// Raw returns the memory of v. Of a scalar tensor it returns a copy. It reports
// false if v's elements do not lie in row-major order without gaps.
func Raw(v gorgonia.Value) ([]byte, bool) {
	switch v := v.(type) {
	case *gorgonia.F32:
		return Bytes(unsafe.Slice(v, 1)), true
	case *gorgonia.F64:
		return Bytes(unsafe.Slice(v, 1)), true
	case *gorgonia.I:
		return Bytes(unsafe.Slice(v, 1)), true
	case *gorgonia.I64:
		return Bytes(unsafe.Slice(v, 1)), true
	case *gorgonia.I32:
		return Bytes(unsafe.Slice(v, 1)), true
	case *gorgonia.U8:
		return Bytes(unsafe.Slice(v, 1)), true
	case *gorgonia.B:
		return Bytes(unsafe.Slice(v, 1)), true
	case *tensor.Dense:
		b := backing(v)
		if b == nil || !v.IsScalar() && (v.RequiresIterator() || v.DataOrder().IsColMajor()) {
			return nil, false
		}
		n := Elements(v.Shape()) * int(v.Dtype().Size())
		if n > len(b) {
			return nil, false
		}
		return b[:n], true
	}
	return nil, false
}

// backing returns all memory that a tensor's strides may lead to, or nil if
// the tensor's type is not supported.
func backing(v *tensor.Dense) []byte {
	switch x := v.Data().(type) {
	case []float32:
		return Bytes(x)
	case []float64:
		return Bytes(x)
	case []int:
		return Bytes(x)
	case []int64:
		return Bytes(x)
	case []int32:
		return Bytes(x)
	case []byte:
		return x
	case []bool:
		return Bytes(x)
	case float32:
		return Bytes([]float32{x})
	case float64:
		return Bytes([]float64{x})
	case int:
		return Bytes([]int{x})
	}
	return nil
}

// Copy copies v's elements to row-major memory.
func Copy(to []byte, v gorgonia.Value) error {
	if from, ok := Raw(v); ok {
		if len(from) != len(to) {
			return fmt.Errorf("a value of shape %v has %d bytes, want %d", v.Shape(), len(from), len(to))
		}
		copy(to, from)
		return nil
	}
	d, ok := v.(*tensor.Dense)
	if !ok || Elements(d.Shape())*int(d.Dtype().Size()) != len(to) || len(d.Strides()) != len(d.Shape()) {
		return fmt.Errorf("a %T of shape %v does not fit into %d bytes", v, v.Shape(), len(to))
	}
	return gather(to, backing(d), int(d.Dtype().Size()), d.Shape(), d.Strides())
}

// gather follows strides, the last dimension fastest.
func gather(to, from []byte, size int, shape, strides []int) error {
	index := make([]int, len(shape))
	for i := 0; i < len(to); i += size {
		at := Offset(index, strides) * size
		if at < 0 || at+size > len(from) {
			return fmt.Errorf("the strides %v of a tensor lead out of its memory", strides)
		}
		copy(to[i:i+size], from[at:at+size])
		Advance(index, shape)
	}
	return nil
}

// Offset is where the element at index lies, for the strides of its dimensions.
// There may be more strides than dimensions of index.
func Offset(index, strides []int) int {
	at := 0
	for k, x := range index {
		at += x * strides[k]
	}
	return at
}

// Advance moves index to the next element of shape, the last dimension of index
// fastest. After the last element comes the first.
func Advance(index, shape []int) {
	for k := len(index) - 1; k >= 0; k-- {
		if index[k]++; index[k] < shape[k] {
			return
		}
		index[k] = 0
	}
}
