package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/device"
)

// alignment of values in GPU memory, in bytes
const alignment = 256

// block is a block of memory that is being divided; size counts the bytes
// assigned so far.
type block struct{ size int }

// take assigns the next n bytes of the block and returns their offset.
func (b *block) take(n int) int {
	at := b.size
	b.size += (max(n, 1) + alignment - 1) / alignment * alignment
	return at
}

// places holds the offset of each value in the program's block of GPU memory.
type places struct {
	base                                device.Pointer
	bytes                               int // size of the whole block
	inputs, fixed, constants, gradients map[*compile.Value]int
	streams                             map[*compile.Value]int // offset of the random number generator's state, for each instruction that draws random numbers
	arena                               int
	scratch                             int
	staging                             []byte // pinned host memory through which constants are copied; freed only in Close, when no other machine's work runs on the GPU
}

// plan assigns offsets in the block of GPU memory. scratch is the size in
// bytes of the working memory that kernels share.
func plan(p *compile.Program, scratch int) *places {
	var b block
	area := func(values []*compile.Value) map[*compile.Value]int {
		at := map[*compile.Value]int{}
		for _, v := range values {
			if _, there := at[v.Root]; !there {
				at[v.Root] = b.take(v.Root.Length())
			}
		}
		return at
	}
	s := &places{inputs: area(p.Inputs), fixed: area(p.Fixed), constants: area(constants(p))}
	s.gradients = map[*compile.Value]int{}
	for _, g := range p.Gradients {
		s.gradients[g.Value.Root] = b.take(g.Value.Length())
	}
	s.streams = map[*compile.Value]int{}
	for _, in := range p.Instructions {
		if random(in.Value) {
			s.streams[in.Value] = b.take(streamBytes)
		}
	}
	s.arena, s.scratch = b.take(p.ArenaBytes), b.take(scratch)
	s.bytes = b.size
	return s
}

// streamBytes is the size of the state of a random number generator: the four
// 32-bit words of random.Stream.Words.
const streamBytes = 16

// stream returns the GPU address of the random number generator's state that
// instruction v reads.
func (s *places) stream(v *compile.Value) device.Pointer {
	return s.base + device.Pointer(s.streams[v])
}

// constants returns the constants that a run reads. Each of them is a root, a
// value with memory of its own.
func constants(p *compile.Program) (all []*compile.Value) {
	seen := map[*compile.Value]bool{}
	add := func(v *compile.Value) {
		if v.Root.Place.Area == compile.InConstants && !seen[v.Root] {
			seen[v.Root] = true
			all = append(all, v.Root)
		}
	}
	for _, in := range p.Instructions {
		for _, v := range in.Value.Inputs {
			add(v)
		}
	}
	for _, v := range p.Outputs {
		add(v)
	}
	return all
}

// of returns the address of value v in GPU memory.
func (s *places) of(v *compile.Value) device.Pointer {
	r := v.Root
	offset := 0
	switch r.Place.Area {
	case compile.InInputs:
		offset = s.inputs[r]
	case compile.InFixed:
		offset = s.fixed[r]
	case compile.InConstants:
		offset = s.constants[r]
	case compile.InGradients:
		offset = s.gradients[r]
	default:
		offset = s.arena + r.Place.Index
	}
	return s.base + device.Pointer(offset)
}

// MemoryError reports that a program does not fit into the GPU's free memory.
type MemoryError struct {
	Want, Free uint64
	Largest    []string // labels, shapes and sizes of the largest values
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("the program needs %s of the gpu's memory, and %s is free; the largest values are %s",
		size(e.Want), size(e.Free), strings.Join(e.Largest, ", "))
}

// Hint returns advice for the user.
func (e *MemoryError) Hint() string {
	return "use a smaller batch for each virtual worker (--accumulate keeps the whole one), or free the gpu: plx probe shows who uses it"
}

// tooLarge returns a *MemoryError that lists the program's five largest
// values. free is the GPU's free memory in bytes.
func (s *places) tooLarge(p *compile.Program, free uint64) error {
	var all []*compile.Value
	seen := map[*compile.Value]bool{}
	add := func(v *compile.Value) {
		if !seen[v.Root] {
			seen[v.Root] = true
			all = append(all, v.Root)
		}
	}
	for _, in := range p.Instructions {
		add(in.Value)
		for _, v := range in.Value.Inputs {
			add(v)
		}
	}
	slices.SortStableFunc(all, func(a, b *compile.Value) int { return cmp.Compare(b.Length(), a.Length()) })
	e := &MemoryError{Want: uint64(s.bytes), Free: free}
	for _, v := range all[:min(5, len(all))] {
		e.Largest = append(e.Largest, fmt.Sprintf("%s %v %s", v.Label(), v.Shape, size(uint64(v.Length()))))
	}
	return e
}

// size formats a number of bytes in KiB, MiB or GiB.
func size(n uint64) string {
	const kib = 1 << 10
	switch {
	case n >= kib*kib*kib:
		return fmt.Sprintf("%.1f GiB", float64(n)/(kib*kib*kib))
	case n >= kib*kib:
		return fmt.Sprintf("%.1f MiB", float64(n)/(kib*kib))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/kib)
}
