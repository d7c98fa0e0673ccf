// Package memory converts Gorgonia's values to row-major bytes and back.
//
//	b := memory.Aligned(6 * 4)
//	value, err := memory.Wrap(tensor.Float32, tensor.Shape{2, 3}, false, b)
//	numbers := memory.View[float32](b) // the same memory
//
// It supports scalars and dense tensors of float32, float64, int, int32,
// int64, byte and bool. Any other type is an error.
package memory

import (
	"fmt"
	"reflect"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Alignment is the alignment in bytes of every value in the memory that a
// compiled program plans for its values: the size of a cache line.
const Alignment = 64

// Elements returns the number of elements of a tensor of that shape. An empty
// shape is a scalar and has one element.
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

// View returns the memory of b as a slice of T, without a copy.
func View[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// Bytes returns the memory of x as bytes, without a copy.
func Bytes[T any](x []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(zero)))
}

// scalars maps each supported element type to the Go type of Gorgonia's
// scalars of that type.
var scalars = map[tensor.Dtype]reflect.Type{
	tensor.Float32: reflect.TypeFor[gorgonia.F32](),
	tensor.Float64: reflect.TypeFor[gorgonia.F64](),
	tensor.Int:     reflect.TypeFor[gorgonia.I](),
	tensor.Int64:   reflect.TypeFor[gorgonia.I64](),
	tensor.Int32:   reflect.TypeFor[gorgonia.I32](),
	tensor.Byte:    reflect.TypeFor[gorgonia.U8](),
	tensor.Bool:    reflect.TypeFor[gorgonia.B](),
}

// Wrap returns a Gorgonia value of the given type and shape that uses memory
// b, in row-major order. scalar selects a Gorgonia scalar instead of a tensor.
func Wrap(dt tensor.Dtype, shape tensor.Shape, scalar bool, b []byte) (gorgonia.Value, error) {
	of, p := scalars[dt], unsafe.Pointer(unsafe.SliceData(b))
	switch {
	case of == nil:
		return nil, fmt.Errorf("values of type %v are not supported", dt)
	case scalar:
		return reflect.NewAt(of, p).Interface().(gorgonia.Value), nil
	case len(shape) == 0:
		return nil, fmt.Errorf("tensors of type %v without dimensions are not supported", dt)
	}
	backing := reflect.SliceAt(dt.Type, p, len(b)/int(dt.Size())).Interface()
	return tensor.New(tensor.WithShape(shape.Clone()...), tensor.WithBacking(backing)), nil
}

// Raw returns the memory of v's elements, without a copy. It returns false if
// the elements are not in row-major order without gaps.
func Raw(v gorgonia.Value) ([]byte, bool) {
	switch v := v.(type) {
	case gorgonia.Scalar:
		return unsafe.Slice((*byte)(reflect.ValueOf(v).UnsafePointer()), v.MemSize()), true
	case *tensor.Dense:
		n := Elements(v.Shape()) * int(v.Dtype().Size())
		if scalars[v.Dtype()] == nil || n > len(v.Raw) || !v.IsScalar() && (v.RequiresIterator() || v.DataOrder().IsColMajor()) {
			return nil, false
		}
		return v.Raw[:n], true
	}
	return nil, false
}

// Copy fills a slice (to) with the elements of v, in row-major order.
func Copy(to []byte, v gorgonia.Value) error {
	if from, ok := Raw(v); ok {
		if len(from) != len(to) {
			return fmt.Errorf("a value of shape %v has %d bytes, want %d", v.Shape(), len(from), len(to))
		}
		copy(to, from)
		return nil
	}
	d, ok := v.(*tensor.Dense)
	if !ok || scalars[d.Dtype()] == nil || Elements(d.Shape())*int(d.Dtype().Size()) != len(to) || len(d.Strides()) != len(d.Shape()) {
		return fmt.Errorf("a %T of shape %v does not fit into %d bytes", v, v.Shape(), len(to))
	}
	return gather(to, d.Raw, int(d.Dtype().Size()), d.Shape(), d.Strides())
}

// gather copies the elements of a strided tensor (from) to a slice (to), in
// row-major order. size is the size of one element in bytes.
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

// Offset returns the position in memory, in elements, of the element at index.
// strides has an entry for each dimension and may have more entries than
// index.
func Offset(index, strides []int) int {
	at := 0
	for k, x := range index {
		at += x * strides[k]
	}
	return at
}

// Advance moves index to the next element of a tensor in row-major order. From
// the last element it wraps around to the first.
func Advance(index, shape []int) {
	for k := len(index) - 1; k >= 0; k-- {
		if index[k]++; index[k] < shape[k] {
			return
		}
		index[k] = 0
	}
}
