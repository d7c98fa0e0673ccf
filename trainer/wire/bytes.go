package wire

import (
	"encoding/binary"
	"errors"
	"unsafe"
)

// Float is a type of number that travels raw.
type Float interface{ float32 | float64 }

// Bytes returns the memory of s, not a copy.
func Bytes[T Float](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// CheckHost refuses a machine whose numbers in memory are not what travels.
func CheckHost() error {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return errors.New("this machine is big-endian, training data travels little-endian: use another host")
	}
	return nil
}

// Floats returns the memory of b as numbers, not a copy. b must come from
// Bytes or hold whole, aligned numbers.
func Floats[T Float](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(one)))
}
