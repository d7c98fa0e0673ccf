package collective

import "unsafe"

// Number is what collectives work on.
type Number interface{ float32 | float64 | int64 }

// dtype names a type of element on the wire.
type dtype uint8

const (
	noType dtype = iota // of a barrier
	byteType
	float32Type
	float64Type
	int64Type
	dtypes
)

var dtypeNames = [dtypes]string{"", "bytes", "float32", "float64", "int64"}

func (t dtype) String() string { return dtypeNames[t] }

func (t dtype) size() int { return [dtypes]int{1, 1, 4, 8, 8}[t] }

// add sets dst to a + b, element by element. dst may be a or b.
func (t dtype) add(dst, a, b []byte) {
	switch t {
	case float32Type:
		add(numbers[float32](dst), numbers[float32](a), numbers[float32](b))
	case float64Type:
		add(numbers[float64](dst), numbers[float64](a), numbers[float64](b))
	case int64Type:
		add(numbers[int64](dst), numbers[int64](a), numbers[int64](b))
	}
}

func add[T Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for len(dst) >= 8 {
		d, x, y := (*[8]T)(dst), (*[8]T)(a), (*[8]T)(b)
		d[0], d[1], d[2], d[3] = x[0]+y[0], x[1]+y[1], x[2]+y[2], x[3]+y[3]
		d[4], d[5], d[6], d[7] = x[4]+y[4], x[5]+y[5], x[6]+y[6], x[7]+y[7]
		dst, a, b = dst[8:], a[8:], b[8:]
	}
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// memory returns the bytes of s, not a copy.
func memory[T Number](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// numbers is the inverse of memory. b is aligned: it comes from there or from
// aligned, cut at whole elements.
func numbers[T Number](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(zero)))
}

// aligned allocates bytes that may hold any Number.
func aligned(size int) []byte { return memory(make([]int64, (size+7)/8))[:size] }

// Share says which elements [lo, hi) of a slice of n belong to a rank: lengths
// differ by one at most, the longer ones come first.
func Share(n, world, rank int) (lo, hi int) {
	each, more := n/world, n%world
	lo = rank*each + min(rank, more)
	hi = lo + each
	if rank < more {
		hi++
	}
	return lo, hi
}

// share is Share of memory that holds elements of size bytes.
func share(b []byte, size, world, rank int) []byte {
	lo, hi := Share(len(b)/size, world, rank)
	return b[lo*size : hi*size : hi*size]
}
