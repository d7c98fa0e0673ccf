package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/device"
)

// alignment of values in the GPU's memory, in bytes.
const alignment = 256

// block hands out pieces of one block of memory.
type block struct{ size int }

// take returns the offset of n bytes more.
func (b *block) take(n int) int {
	at := b.size
	b.size += (max(n, 1) + alignment - 1) / alignment * alignment
	return at
}

// places are where the values of a program lie on the GPU.
type places struct {
	base                                device.Pointer
	bytes                               int // of the whole block
	inputs, fixed, constants, gradients map[*compile.Value]int
	streams                             map[*compile.Value]int // of the random numbers of an instruction
	arena                               int
	scratch                             int
	staging                             []byte // pinned, for constants; a GPU may not give memory back while another machine's work is left
}

// plan lays out the block. scratch is the size of memory that operations use
// while they run.
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

// streamBytes is the size of a random stream: random.Stream.Words.
const streamBytes = 16

// stream is the address of the random stream that an instruction reads.
func (s *places) stream(v *compile.Value) device.Pointer {
	return s.base + device.Pointer(s.streams[v])
}

// constants are the roots of all values that are known before the first run and
// that a run reads.
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

// of is the address of a value.
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

// MemoryError says that a program does not fit into a GPU's memory.
type MemoryError struct {
	Want, Free uint64
	Largest    []string // the largest values with their sizes
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("the program needs %s of the gpu's memory, and %s is free; the largest values are %s",
		size(e.Want), size(e.Free), strings.Join(e.Largest, ", "))
}

// Hint tells the user what to do.
func (e *MemoryError) Hint() string {
	return "use a smaller batch for each virtual worker (--accumulate keeps the whole one), or free the gpu: plx probe shows who uses it"
}

// tooLarge is the error for a program that needs more memory than there is.
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

// size is a number of bytes for people.
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
