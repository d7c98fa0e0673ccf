// Package compile makes programs of kernels: it gives registers, constants and
// variables their places, copies device functions into their callers, and
// chooses a step of package machine for each instruction.
//
//	program, err := compile.Kernel(module, function, compile.Settings{})
//
// It refuses recursion, indirect calls and barriers for a part of a block. An
// error names the line.
package compile

import (
	"slices"

	"github.com/plx-run/plx/internal/ptx/machine"
	"github.com/plx-run/plx/internal/ptx/scalar"
	"github.com/plx-run/plx/internal/ptx/syntax"
)

// Bounds on a kernel after its functions were copied into it.
const (
	mostLines     = 1 << 20
	mostRegisters = 1 << 14
	mostLocal     = 512 << 10 // bytes of one lane
)

// gap is the least number of bytes between two variables in shared memory, so
// that an access behind the end of one does not reach the next.
const gap = 64

// Settings are what a kernel is compiled with.
type Settings struct {
	Scalar  scalar.Settings
	Globals map[string]int // variable in global or constant memory: its index
	Params  map[string]int // parameter of the kernel: its offset
}

// A builder makes a program of a function and the functions that it calls.
type builder struct {
	module     *syntax.Module
	settings   Settings
	code       []machine.Line
	registers  int
	predicates int
	fixed      map[uint64]int // constant: its register
	specials   map[string]int // special register: its register
	addresses  map[string]int // variable in global memory: the register with its address
	truths     [2][]int
	shared     map[string]int // variable in shared memory: its offset
	dynamics   []int          // registers with the address of dynamic shared memory
	static     int            // bytes of shared memory on a device
	layout     int            // the same with gaps
	gaps       [][2]int       // begin and end
	local      int            // bytes of local memory
	accesses   int
	calls      []*syntax.Function // the stack of copied functions
}

// Kernel compiles a kernel.
func Kernel(module *syntax.Module, f *syntax.Function, s Settings) (*machine.Program, error) {
	b := &builder{module: module, settings: s, fixed: map[uint64]int{}, specials: map[string]int{}, addresses: map[string]int{}, shared: map[string]int{}}
	if err := b.copy(f, nil); err != nil {
		return nil, err
	}
	b.code = append(b.code, machine.Line{Step: machine.Leave{}, Guard: -1, Source: int32(f.Line)})
	return b.program(), nil
}

// program puts together what was built.
func (b *builder) program() *machine.Program {
	dynamic := align(b.layout+gap, 128)
	if b.layout == 0 {
		dynamic = 0
	} else {
		b.gaps = append(b.gaps, [2]int{b.layout, dynamic})
	}
	p := &machine.Program{Code: b.code, Registers: b.registers, Predicates: b.predicates, Truths: b.truths,
		Static: b.static, Layout: b.layout, Gaps: b.gaps, Dynamic: dynamic, Local: b.local, Accesses: b.accesses}
	for bits, r := range b.fixed {
		p.Constants = append(p.Constants, machine.Constant{Register: r, Bits: bits})
	}
	for _, r := range b.dynamics {
		p.Constants = append(p.Constants, machine.Constant{Register: r, Bits: uint64(dynamic)})
	}
	for name, r := range b.specials {
		p.Specials = append(p.Specials, machine.Special{Register: r, Name: name})
	}
	for name, r := range b.addresses {
		p.Symbols = append(p.Symbols, machine.Constant{Register: r, Bits: uint64(b.settings.Globals[name])})
	}
	return p
}

// align rounds n up to a multiple.
func align(n, to int) int { return (n + to - 1) / to * to }

// constant returns a register with fixed bits.
func (b *builder) constant(bits uint64) int {
	if r, ok := b.fixed[bits]; ok {
		return r
	}
	r := b.register()
	b.fixed[bits] = r
	return r
}

func (b *builder) register() int {
	b.registers++
	return b.registers - 1
}

func (b *builder) predicate() int {
	b.predicates++
	return b.predicates - 1
}

// truth returns a predicate that is always true or always false.
func (b *builder) truth(is bool) int {
	i := 0
	if is {
		i = 1
	}
	if len(b.truths[i]) == 0 {
		b.truths[i] = []int{b.predicate()}
	}
	return b.truths[i][0]
}

// special returns the register of a special register.
func (b *builder) special(name string) (int, bool) {
	if !machine.IsSpecial(name) {
		return 0, false
	}
	r, ok := b.specials[name]
	if !ok {
		r = b.register()
		b.specials[name] = r
	}
	return r, true
}

// address returns a register with the address of a variable in global or
// constant memory.
func (b *builder) address(name string) (int, bool) {
	if _, found := b.settings.Globals[name]; !found {
		return 0, false
	}
	r, ok := b.addresses[name]
	if !ok {
		r = b.register()
		b.addresses[name] = r
	}
	return r, true
}

// sharedAddress returns a register with the address of a variable in shared
// memory.
func (b *builder) sharedAddress(name string, own []syntax.Variable) (int, bool) {
	same := func(v syntax.Variable) bool { return v.Name == name && v.Space == "shared" }
	i := slices.IndexFunc(own, same)
	all := own
	if i < 0 {
		all = b.module.Variables
		if i = slices.IndexFunc(all, same); i < 0 {
			return 0, false
		}
	}
	v := all[i]
	if v.Size == 0 {
		r := b.register()
		b.dynamics = append(b.dynamics, r)
		return r, true
	}
	offset, placed := b.shared[name]
	if !placed {
		if offset = b.layout; offset > 0 {
			offset = align(b.layout+gap, max(v.Align, 16))
			b.gaps = append(b.gaps, [2]int{b.layout, offset})
		}
		b.shared[name] = offset
		b.layout = offset + v.Size
		b.static = align(b.static, v.Align) + v.Size
	}
	return b.constant(uint64(offset)), true
}

// reserve returns the offset of a variable in local memory.
func (b *builder) reserve(v syntax.Variable) (int, error) {
	at := align(b.local, v.Align)
	b.local = at + v.Size
	if b.local > mostLocal {
		return 0, &syntax.Error{Line: v.Line, What: "a thread has more than 512 KiB of local memory"}
	}
	return at, nil
}

// access numbers a load, store or atomic operation.
func (b *builder) access() int {
	b.accesses++
	return b.accesses - 1
}
