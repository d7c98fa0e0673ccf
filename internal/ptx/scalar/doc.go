// Package scalar computes what one thread computes with one instruction of
// PTX: registers in, a register out, without memory and without other threads.
//
//	op, err := scalar.Find([]string{"fma", "rn", "f32"}, scalar.Settings{})
//	bits := op.F(a, b, c)
//
// A register is a uint64 that holds the bits of a value of the instruction's
// type, with zeros above. Results are those that the PTX ISA defines, to the
// bit: floats round as IEEE 754 says, NaNs are the one NaN that devices make.
//
// It refuses instructions whose bits depend on the device, such as ex2.approx,
// and flushing of subnormal numbers unless Settings ask for it.
package scalar

import (
	"fmt"
	"slices"
	"strings"
)

// Settings say what Find accepts beyond exact arithmetic.
type Settings struct {
	Flush bool // .ftz: subnormal f32 operands and results become zero
}

// A Type is the type of an operand.
type Type struct {
	Name  string // such as f32, u16 or pred
	Class byte   // 'u', 's', 'b' or 'f'
	Bits  int    // 8, 16, 32 or 64
}

var types = map[string]Type{}

func init() {
	for _, class := range []byte{'u', 's', 'b', 'f'} {
		for _, bits := range []int{8, 16, 32, 64} {
			name := fmt.Sprintf("%c%d", class, bits)
			types[name] = Type{name, class, bits}
		}
	}
	delete(types, "f8")
}

// TypeOf finds a type by its name.
func TypeOf(name string) (Type, bool) {
	t, ok := types[name]
	return t, ok
}

// Mask has the bits that a value of the type may have.
func (t Type) Mask() uint64 { return 1<<t.Bits - 1 }

// signed extends the sign of a value to 64 bits if the type has one.
func (t Type) signed(v uint64) int64 {
	if t.Class != 's' {
		return int64(v & t.Mask())
	}
	shift := 64 - t.Bits
	return int64(v<<shift) >> shift
}

// A Function computes a result from operands. It ignores those that its
// instruction does not have.
type Function = func(a, b, c, d uint64) uint64

// An Operation is what an instruction computes.
type Operation struct {
	Result Type
	Args   []Type
	F      Function
	Divide bool // the second operand must not be zero
}

// opcode is an instruction's name, divided.
type opcode struct {
	base      string
	modifiers []string
	types     []Type
}

func divide(parts []string) opcode {
	o := opcode{base: parts[0]}
	for _, part := range parts[1:] {
		if t, ok := types[part]; ok {
			o.types = append(o.types, t)
			continue
		}
		o.modifiers = append(o.modifiers, part)
	}
	return o
}

// take removes a modifier and reports whether the opcode had it.
func (o *opcode) take(modifier string) bool {
	i := slices.Index(o.modifiers, modifier)
	if i < 0 {
		return false
	}
	o.modifiers = slices.Delete(o.modifiers, i, i+1)
	return true
}

// refused are instructions whose bits depend on the device.
var refused = []string{"ex2", "lg2", "sin", "cos", "tanh", "rsqrt"}

// Find returns the operation of an instruction.
func Find(parts []string, s Settings) (Operation, error) {
	o := divide(parts)
	name := strings.Join(parts, ".")
	if slices.Contains(refused, o.base) || slices.Contains(o.modifiers, "approx") || slices.Contains(o.modifiers, "full") {
		return Operation{}, fmt.Errorf("instruction %s is refused: its bits depend on the device", name)
	}
	flush := o.take("ftz")
	if flush && !s.Flush {
		return Operation{}, fmt.Errorf("instruction %s is refused: it flushes subnormal numbers", name)
	}
	op, ok := o.find()
	if !ok || len(o.modifiers) > 0 {
		return Operation{}, fmt.Errorf("unknown instruction %s", name)
	}
	if flush {
		op = flushed(op)
	}
	return op, nil
}

// find looks at the families one after the other. It removes the modifiers
// that it knows.
func (o *opcode) find() (Operation, bool) {
	if o.base == "cvt" {
		modifiers := o.modifiers
		o.modifiers = nil
		return conversion(o.types, modifiers)
	}
	if len(o.types) == 0 {
		return Operation{}, false
	}
	if o.base == "slct" {
		return o.sign()
	}
	if len(o.types) != 1 && o.base != "shf" {
		return Operation{}, false
	}
	if o.types[0].Class == 'f' {
		return o.float()
	}
	if op, ok := o.bitwise(); ok {
		return op, true
	}
	return o.integer()
}

// sign is slct: the third operand's sign chooses.
func (o *opcode) sign() (Operation, bool) {
	if len(o.types) != 2 {
		return Operation{}, false
	}
	t, by := o.types[0], o.types[1]
	negative := func(c uint64) bool { return by.signed(c) < 0 }
	if by.Name == "f32" {
		negative = func(c uint64) bool { return !(single(c) >= 0) }
	} else if by.Name != "s32" {
		return Operation{}, false
	}
	return Operation{Result: t, Args: []Type{t, t, by}, F: func(a, b, c, _ uint64) uint64 {
		if negative(c) {
			return b
		}
		return a
	}}, true
}
