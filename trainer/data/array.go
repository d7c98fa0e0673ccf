package data

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Array is the numbers of an IDX or NumPy file, in row-major order.
type Array struct {
	// Shape holds the lengths of the dimensions, the slowest first. It is empty
	// for a single number.
	Shape []int
	// Values is one of []uint8, []int8, []int16, []int32, []int64, []float32
	// and []float64. Its length is the product of the shape.
	Values any
}

// Number is an element type of an Array.
type Number interface {
	uint8 | int8 | int16 | int32 | int64 | float32 | float64
}

// ValuesOf returns an array's values without a copy. The error names their type
// if it is another.
func ValuesOf[T Number](a *Array) ([]T, error) {
	values, ok := a.Values.([]T)
	if !ok {
		return nil, fmt.Errorf("the array holds %T, want %T", a.Values, values)
	}
	return values, nil
}

// Float32s returns an array's values as float32, rounded to the nearest. If
// they are float32 already it returns them without a copy.
func (a *Array) Float32s() []float32 {
	switch v := a.Values.(type) {
	case []float32:
		return v
	case []uint8:
		return rounded(v)
	case []int8:
		return rounded(v)
	case []int16:
		return rounded(v)
	case []int32:
		return rounded(v)
	case []int64:
		return rounded(v)
	case []float64:
		return rounded(v)
	}
	return nil
}

func rounded[T Number](from []T) []float32 {
	to := make([]float32, len(from))
	for i, x := range from {
		to[i] = float32(x)
	}
	return to
}

// maxDimensions is NumPy's own bound; IDX allows 255.
const maxDimensions = 32

// elements returns the product of a shape. It refuses negative lengths and a
// product above max.
func elements(shape []int, max int64) (int64, error) {
	if len(shape) > maxDimensions {
		return 0, fmt.Errorf("%d dimensions, at most %d are read", len(shape), maxDimensions)
	}
	n, zero := int64(1), false
	for _, length := range shape {
		if length < 0 {
			return 0, fmt.Errorf("shape %v: negative length", shape)
		}
		if length == 0 {
			zero = true
			continue
		}
		if int64(length) > max/n {
			return 0, fmt.Errorf("shape %v: more than the %d elements that are read at most", shape, max)
		}
		n *= int64(length)
	}
	if zero {
		return 0, nil
	}
	return n, nil
}

// element is a type of number in files.
type element struct {
	name   string
	size   int
	decode func(order binary.ByteOrder, b []byte) any // b holds whole elements
}

// elementTypes are the element types of both formats, by NumPy's name.
var elementTypes = map[string]element{
	"u1": {"uint8", 1, func(_ binary.ByteOrder, b []byte) any { return b }},
	"i1": {"int8", 1, func(_ binary.ByteOrder, b []byte) any {
		return decoded(b, 1, func(b []byte) int8 { return int8(b[0]) })
	}},
	"i2": {"int16", 2, func(o binary.ByteOrder, b []byte) any {
		return decoded(b, 2, func(b []byte) int16 { return int16(o.Uint16(b)) })
	}},
	"i4": {"int32", 4, func(o binary.ByteOrder, b []byte) any {
		return decoded(b, 4, func(b []byte) int32 { return int32(o.Uint32(b)) })
	}},
	"i8": {"int64", 8, func(o binary.ByteOrder, b []byte) any {
		return decoded(b, 8, func(b []byte) int64 { return int64(o.Uint64(b)) })
	}},
	"f4": {"float32", 4, func(o binary.ByteOrder, b []byte) any {
		return decoded(b, 4, func(b []byte) float32 { return math.Float32frombits(o.Uint32(b)) })
	}},
	"f8": {"float64", 8, func(o binary.ByteOrder, b []byte) any {
		return decoded(b, 8, func(b []byte) float64 { return math.Float64frombits(o.Uint64(b)) })
	}},
}

func decoded[T Number](b []byte, size int, one func([]byte) T) []T {
	to := make([]T, len(b)/size)
	for i := range to {
		to[i] = one(b[i*size:])
	}
	return to
}

// takeArray reads the elements of a shape. They are the rest of a file.
func (e element) takeArray(s *source, shape []int, order binary.ByteOrder) (*Array, error) {
	n, err := elements(shape, maxBytes/int64(e.size))
	if err != nil {
		return nil, s.because(err)
	}
	b, err := s.take(n*int64(e.size), fmt.Sprintf("%s values of shape %v", e.name, shape))
	if err != nil {
		return nil, err
	}
	if err := s.end("values"); err != nil {
		return nil, err
	}
	return &Array{Shape: shape, Values: e.decode(order, b)}, nil
}

// idxTypes are the element types of IDX, by their code.
var idxTypes = map[byte]string{0x08: "u1", 0x09: "i1", 0x0b: "i2", 0x0c: "i4", 0x0d: "f4", 0x0e: "f8"}

// ReadIDX reads a file in the IDX format of the MNIST data, packed with gzip or
// not. The file holds two zero bytes, the element type, the number of
// dimensions, the length of each as a big-endian uint32, and the elements,
// big-endian.
func ReadIDX(path string) (*Array, error) { return readFile(path, decodeIDX) }

func decodeIDX(s *source) (*Array, error) {
	head, err := s.take(4, "IDX header")
	if err != nil {
		return nil, err
	}
	name, known := idxTypes[head[2]]
	if head[0] != 0 || head[1] != 0 || !known {
		s.back(s.offset)
		return nil, s.hinted("MNIST's files are named like train-images-idx3-ubyte.gz",
			"not an IDX file: it begins with % x, want 00 00, an element type (08, 09, 0b, 0c, 0d, 0e) and the number of dimensions", head)
	}
	lengths, err := s.take(4*int64(head[3]), "lengths of the dimensions")
	if err != nil {
		return nil, err
	}
	shape := make([]int, head[3])
	for i := range shape {
		shape[i] = int(binary.BigEndian.Uint32(lengths[4*i:]))
	}
	return elementTypes[name].takeArray(s, shape, binary.BigEndian)
}
