package safetensors

import (
	"fmt"
	"math/bits"
)

// Dtype is the type of a tensor's elements, as the header names it.
type Dtype string

// The types of checkpoints. Tensors of the format's other types can be read and
// written too.
const (
	F32 Dtype = "F32"
	F64 Dtype = "F64"
	I64 Dtype = "I64"
	U64 Dtype = "U64"
	U8  Dtype = "U8"
)

// elementBits has all types of the format. Elements of fewer than 8 bits are
// packed; a tensor of them fills whole bytes.
var elementBits = map[Dtype]uint64{
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"BOOL": 8, U8: 8, "I8": 8,
	"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	"U16": 16, "I16": 16, "F16": 16, "BF16": 16,
	"U32": 32, "I32": 32, F32: 32,
	U64: 64, I64: 64, F64: 64, "C64": 64,
}

// sizeOf returns the number of bytes of a tensor. It refuses a shape whose
// other dimensions have too many elements even if one dimension is 0. So a
// reader that multiplies them in another order does not overflow.
func sizeOf(dtype Dtype, shape []int) (int64, error) {
	size, known := elementBits[dtype]
	if !known {
		return 0, fmt.Errorf("unknown dtype %.20q", dtype)
	}
	if len(shape) > maxDimensions {
		return 0, fmt.Errorf("%d dimensions, at most %d are read", len(shape), maxDimensions)
	}
	empty := false
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v with a negative dimension", shape)
		}
		if d == 0 {
			empty = true
			continue
		}
		var over uint64
		if over, size = bits.Mul64(size, uint64(d)); over > 0 {
			return 0, fmt.Errorf("%s %v has more elements than a file can hold", dtype, shape)
		}
	}
	if empty {
		return 0, nil
	}
	if size%8 != 0 {
		return 0, fmt.Errorf("%s %v ends inside a byte", dtype, shape)
	}
	return int64(size / 8), nil
}
