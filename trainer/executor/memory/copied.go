package memory

import (
	"encoding/binary"
	"math"
	"slices"

	"gorgonia.org/tensor"
)

// Copied returns a tensor with a copy of row-major numbers. It has no dimensions if
// shape has none.
func Copied[T float32 | float64](shape []int, b []byte) *tensor.Dense {
	data := slices.Clone(View[T](b))
	if len(shape) == 0 {
		return tensor.New(tensor.FromScalar(data[0]))
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
}

// Narrowed returns numbers of float64 as little-endian float32.
func Narrowed(b []byte) []byte {
	narrow := make([]byte, 0, len(b)/2)
	for _, x := range View[float64](b) {
		narrow = binary.LittleEndian.AppendUint32(narrow, math.Float32bits(float32(x)))
	}
	return narrow
}
