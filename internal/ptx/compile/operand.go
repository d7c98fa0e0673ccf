package compile

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/internal/ptx/machine"
	"github.com/plx-run/plx/internal/ptx/scalar"
	"github.com/plx-run/plx/internal/ptx/syntax"
)

// A site is an instruction with what is around it.
type site struct {
	b    *builder
	body *body
	syntax.Statement
}

// register returns a register that the instruction reads: for an immediate, a
// special register or the name of a variable one that has its value.
func (s site) register(i int, t scalar.Type) (int, error) {
	if i >= len(s.Operands) {
		return 0, fmt.Errorf("%s has too few operands", s.Opcode[0])
	}
	return s.value(s.Operands[i], t)
}

func (s site) value(o syntax.Operand, t scalar.Type) (int, error) {
	if o.Kind != syntax.Name {
		if o.Kind > syntax.Float64 {
			return 0, fmt.Errorf("%s: unexpected kind of operand", s.Opcode[0])
		}
		return s.b.constant(o.As(t.Name)), nil
	}
	if r, ok := s.body.slots[o.Name]; ok {
		if r.pred || o.Negate || !s.fits(r, t) {
			return 0, fmt.Errorf("register %s does not hold a value of type %s", o.Name, t.Name)
		}
		return r.index, nil
	}
	if r, ok := s.b.special(o.Name); ok {
		return r, nil
	}
	if r, ok := s.symbol(o.Name); ok {
		return r, nil
	}
	return 0, fmt.Errorf("%q is not declared", o.Name)
}

// fits reports whether a register may hold a value of a type: registers of ld,
// st and cvt may be wider.
func (s site) fits(r slot, t scalar.Type) bool {
	if slices.Contains([]string{"ld", "ldu", "st", "cvt"}, s.Opcode[0]) {
		return r.bits >= t.Bits
	}
	return r.bits == t.Bits
}

// symbol returns a register with the address of a variable or parameter, in
// its own state space.
func (s site) symbol(name string) (int, bool) {
	if at, ok := s.body.local[name]; ok {
		return s.b.constant(uint64(at)), true
	}
	if at, ok := s.b.settings.Params[name]; ok && s.body.entry {
		return s.b.constant(uint64(at)), true
	}
	if r, ok := s.b.sharedAddress(name, s.body.function.Variables); ok {
		return r, true
	}
	return s.b.address(name)
}

// target returns the register that the instruction writes.
func (s site) target(o syntax.Operand, t scalar.Type) (slot, error) {
	r, ok := s.body.slots[o.Name]
	if o.Kind != syntax.Name || o.Negate || !ok || r.pred || !s.fits(r, t) {
		return r, fmt.Errorf("%q is no register for a value of type %s", o.Name, t.Name)
	}
	return r, nil
}

// predicate returns a predicate that the instruction reads.
func (s site) predicate(o syntax.Operand) (machine.Truth, error) {
	if o.Kind == syntax.Integer {
		return machine.Truth{P: s.b.truth(o.Bits != 0)}, nil
	}
	r, ok := s.body.slots[o.Name]
	if o.Kind != syntax.Name || !ok || !r.pred {
		return machine.Truth{}, fmt.Errorf("%q is no predicate", o.Name)
	}
	return machine.Truth{P: r.index, Negate: o.Negate}, nil
}
