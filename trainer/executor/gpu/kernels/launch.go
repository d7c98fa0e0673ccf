package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Type is the element type of an operation.
type Type int

// The element types that have kernels.
const (
	Float32 Type = iota
	Float64
)

// Size returns the size of one element in bytes.
func (t Type) Size() int {
	if t == Float64 {
		return 8
	}
	return 4
}

// suffix returns the ending of the names of kernels that compute with elements
// of type t.
func (t Type) suffix() string {
	if t == Float64 {
		return "f64"
	}
	return "f32"
}

// word returns the ending of the names of kernels that only copy elements, and
// so depend only on the size of type t.
func (t Type) word() string {
	if t == Float64 {
		return "b64"
	}
	return "b32"
}

// Operation lists the kernel launches that compute one operation, in order.
// The list is empty if the operation's result has no elements.
type Operation struct {
	Operands []string // names of the operands, the result first; each operand is row-major in memory without gaps
	Scratch  int      // number of bytes of scratch memory, or 0; the scratch memory is the last operand, aligned to 8 bytes, with undefined contents
	Launches []Launch
	Product  *Matrices // not nil if the launches multiply matrices; cuBLAS can then compute the operation instead
}

// Launch is one call of a kernel. No kernel uses dynamic shared memory.
type Launch struct {
	Module      string // name of the PTX module that contains the kernel
	Kernel      string
	Grid, Block [3]uint32
	Operands    []int  // index into Operation.Operands for each pointer parameter of the kernel
	Scalars     []byte // parameters after the pointers, encoded as the kernel lays them out in memory
}

// Params returns all parameters of the kernel, encoded in one block of memory.
// operands are the GPU addresses of Operation.Operands.
func (l Launch) Params(operands ...uint64) []byte {
	p := make([]byte, 0, 8*len(l.Operands)+len(l.Scalars))
	for _, i := range l.Operands {
		p = binary.LittleEndian.AppendUint64(p, operands[i])
	}
	return append(p, l.Scalars...)
}

const (
	mostElements = 1<<31 - 1
	blockThreads = 256
	busyBlocks   = 1024
	// mostBlocks is the maximum number of blocks of kernels whose threads take
	// several elements each. That many blocks should keep every present GPU
	// busy.
	//
	// TODO: no real GPU has run this; busyBlocks and mostBlocks are guesses.
	mostBlocks = 4096
)

// check returns an error for a size that is negative or too large for the
// kernels' 32-bit counters.
func check(what string, sizes ...int) error {
	for _, n := range sizes {
		if n < 0 || n > mostElements {
			return fmt.Errorf("%s on a GPU: %d elements, want at most %d", what, n, mostElements)
		}
	}
	return nil
}

// elements returns the product of sizes. It returns mostElements+1 if the
// product is larger than mostElements.
func elements(sizes ...int) int {
	n := 1
	for _, s := range sizes {
		if s <= 0 {
			return s // s is 0, so the product is 0, or s is negative, which check refuses later
		}
		if n > mostElements/s {
			n = mostElements + 1
			continue
		}
		n *= s
	}
	return n
}

// over returns an operation with one launch, whose threads share n elements.
// Each operand becomes a pointer parameter of the kernel.
func over(module, kernel string, operands []string, n int, scalars ...any) Operation {
	o := Operation{Operands: operands}
	return o.then(launch(module, kernel, grid(n), blockThreads, all(len(operands)), scalars...))
}

// then appends launch l to the operation. It appends nothing if the launch has
// no blocks.
func (o Operation) then(l Launch) Operation {
	if l.Grid[0]*l.Grid[1]*l.Grid[2] > 0 {
		o.Launches = append(o.Launches, l)
	}
	return o
}

func launch(module, kernel string, grid [3]uint32, threads uint32, operands []int, scalars ...any) Launch {
	return Launch{Module: module, Kernel: kernel, Grid: grid, Block: [3]uint32{threads, 1, 1}, Operands: operands, Scalars: encode(scalars)}
}

// grid returns the number of blocks for n elements. One thread takes one
// element. If n is large enough to keep a GPU busy, a thread takes four or
// more.
func grid(n int) [3]uint32 {
	blocks := divide(n, blockThreads)
	if blocks > busyBlocks {
		blocks = min(max(busyBlocks, divide(n, 4*blockThreads)), mostBlocks)
	}
	return [3]uint32{uint32(blocks), 1, 1}
}

// divide returns n / by, rounded up.
func divide(n, by int) int { return (n + by - 1) / by }

// all returns the integers 0 to n-1.
func all(n int) []int {
	indices := make([]int, n)
	for i := range indices {
		indices[i] = i
	}
	return indices
}

// encode encodes a kernel's scalar parameters with the alignment that C uses.
// The pointer parameters before them end at a multiple of 8 bytes.
func encode(scalars []any) []byte {
	var b []byte
	align := func(size int) {
		for len(b)%size != 0 {
			b = append(b, 0)
		}
	}
	for _, s := range scalars {
		switch s := s.(type) {
		case int:
			align(4)
			b = binary.LittleEndian.AppendUint32(b, uint32(s))
		case uint32:
			align(4)
			b = binary.LittleEndian.AppendUint32(b, s)
		case float32:
			align(4)
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(s))
		case uint64:
			align(8)
			b = binary.LittleEndian.AppendUint64(b, s)
		case float64:
			align(8)
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s))
		default:
			panic(fmt.Sprintf("kernels: a parameter of type %T", s))
		}
	}
	return b
}

// number returns x as a kernel parameter of type t.
func (t Type) number(x float64) any {
	if t == Float64 {
		return x
	}
	return float32(x)
}
