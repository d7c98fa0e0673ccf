package memory

import (
	"encoding/binary"
	"math"
	"slices"

	"gorgonia.org/tensor"
)

// Copied returns a tensor with its own copy of the row-major numbers in b. If
// shape is empty the tensor is a scalar with the first number.
func Copied[T float32 | float64](shape []int, b []byte) *tensor.Dense {
	data := slices.Clone(View[T](b))
	if len(shape) == 0 {
		return tensor.New(tensor.FromScalar(data[0]))
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
}

// Narrowed converts float64 numbers in b, in the host's byte order, to
// little-endian float32.
func Narrowed(b []byte) []byte {
	narrow := make([]byte, 0, len(b)/2)
	for _, x := range View[float64](b) {
		narrow = binary.LittleEndian.AppendUint32(narrow, math.Float32bits(float32(x)))
	}
	return narrow
}
