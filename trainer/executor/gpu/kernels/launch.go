package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Type is the type of an operation's numbers.
type Type int

// The types that have kernels.
const (
	Float32 Type = iota
	Float64
)

// Size is the number of bytes of a number.
func (t Type) Size() int {
	if t == Float64 {
		return 8
	}
	return 4
}

// suffix ends the name of a kernel that computes with the type.
func (t Type) suffix() string {
	if t == Float64 {
		return "f64"
	}
	return "f32"
}

// word ends the name of a kernel that copies words of the type's size.
func (t Type) word() string {
	if t == Float64 {
		return "b64"
	}
	return "b32"
}

// Operation is the launches that compute one operation, in order. It has none
// if the result is empty.
type Operation struct {
	Operands []string // names of the operands, the result first; they lie row-major in memory without gaps
	Scratch  int      // bytes of scratch memory, aligned to 8, with undefined contents; the last operand if not 0
	Launches []Launch
	Product  *Matrices // not nil: the launches multiply these matrices, as a library may instead
}

// Launch is one call of a kernel. It uses no dynamic shared memory.
type Launch struct {
	Module      string // name of the module that has the kernel
	Kernel      string
	Grid, Block [3]uint32
	Operands    []int  // by pointer parameter: index of the operation's operand
	Scalars     []byte // the parameters after the pointers, in the memory layout of the kernel's parameters
}

// Params returns the parameters of the kernel in one block of memory. operands
// are the addresses of the operation's operands.
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
	// mostBlocks bounds the grid of kernels whose threads take several elements:
	// enough for every present GPU to be busy.
	mostBlocks = 4096
)

// check reports sizes that the kernels do not count.
func check(what string, sizes ...int) error {
	for _, n := range sizes {
		if n < 0 || n > mostElements {
			return fmt.Errorf("%s on a GPU: %d elements, want at most %d", what, n, mostElements)
		}
	}
	return nil
}

// elements is the product of sizes; more than mostElements if it is too large.
func elements(sizes ...int) int {
	n := 1
	for _, s := range sizes {
		if s <= 0 {
			return s // an empty or refused size
		}
		if n > mostElements/s {
			n = mostElements + 1
			continue
		}
		n *= s
	}
	return n
}

// over returns an operation of one launch whose threads take n elements in
// turn. Each operand is a pointer parameter.
func over(module, kernel string, operands []string, n int, scalars ...any) Operation {
	o := Operation{Operands: operands}
	return o.then(launch(module, kernel, grid(n), blockThreads, all(len(operands)), scalars...))
}

// then appends a launch, unless its grid is empty.
func (o Operation) then(l Launch) Operation {
	if l.Grid[0]*l.Grid[1]*l.Grid[2] > 0 {
		o.Launches = append(o.Launches, l)
	}
	return o
}

func launch(module, kernel string, grid [3]uint32, threads uint32, operands []int, scalars ...any) Launch {
	return Launch{Module: module, Kernel: kernel, Grid: grid, Block: [3]uint32{threads, 1, 1}, Operands: operands, Scalars: encode(scalars)}
}

// grid is a grid for n elements. If there are enough of them to keep a GPU busy,
// threads take four or more.
func grid(n int) [3]uint32 {
	blocks := divide(n, blockThreads)
	if blocks > busyBlocks {
		blocks = min(max(busyBlocks, divide(n, 4*blockThreads)), mostBlocks)
	}
	return [3]uint32{uint32(blocks), 1, 1}
}

// divide rounds up.
func divide(n, by int) int { return (n + by - 1) / by }

// all are the indices below n.
func all(n int) []int {
	indices := make([]int, n)
	for i := range indices {
		indices[i] = i
	}
	return indices
}

// encode lays parameters out as C does. The pointers before them end at a
// multiple of 8.
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

// number is x in the type t, as a parameter.
func (t Type) number(x float64) any {
	if t == Float64 {
		return x
	}
	return float32(x)
}
