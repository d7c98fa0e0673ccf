package scalar

import "math/bits"

// bitwise finds what looks at bits: logic, shifts, counts and fields.
func (o *opcode) bitwise() (Operation, bool) {
	t := o.types[0]
	if t.Bits == 8 {
		return Operation{}, false
	}
	if o.base == "shl" || o.base == "shr" {
		return o.shift(t)
	}
	if op, ok := o.logic(t); ok {
		return op, true
	}
	if op, ok := o.count(t); ok {
		return op, true
	}
	return o.field(t)
}

// logic finds and, or, xor, not and cnot.
func (o *opcode) logic(t Type) (Operation, bool) {
	op := Operation{Result: t, Args: []Type{t, t}}
	if t.Class != 'b' {
		return op, false
	}
	switch o.base {
	case "and":
		op.F = func(a, b, _, _ uint64) uint64 { return a & b }
	case "or":
		op.F = func(a, b, _, _ uint64) uint64 { return a | b }
	case "xor":
		op.F = func(a, b, _, _ uint64) uint64 { return a ^ b }
	case "not":
		op.F, op.Args = func(a, _, _, _ uint64) uint64 { return ^a & t.Mask() }, []Type{t}
	case "cnot":
		op.F, op.Args = func(a, _, _, _ uint64) uint64 {
			if a == 0 {
				return 1
			}
			return 0
		}, []Type{t}
	default:
		return op, false
	}
	return op, true
}

// shift finds shl and shr, which clamp the distance to the width.
func (o *opcode) shift(t Type) (Operation, bool) {
	op := Operation{Result: t, Args: []Type{t, types["u32"]}}
	switch {
	case o.base == "shl" && t.Class == 'b':
		op.F = func(a, b, _, _ uint64) uint64 { return a << b & t.Mask() }
	case o.base == "shr" && t.Class == 's':
		op.F = func(a, b, _, _ uint64) uint64 { return uint64(t.signed(a)>>b) & t.Mask() }
	case o.base == "shr":
		op.F = func(a, b, _, _ uint64) uint64 { return a >> b }
	default:
		return op, false
	}
	return op, true
}

// count finds popc, clz, brev and bfind.
func (o *opcode) count(t Type) (Operation, bool) {
	op := Operation{Result: types["u32"], Args: []Type{t}}
	if t.Bits < 32 {
		return op, false
	}
	switch {
	case o.base == "popc" && t.Class == 'b':
		op.F = func(a, _, _, _ uint64) uint64 { return uint64(bits.OnesCount64(a)) }
	case o.base == "clz" && t.Class == 'b':
		op.F = func(a, _, _, _ uint64) uint64 { return uint64(bits.LeadingZeros64(a) - (64 - t.Bits)) }
	case o.base == "brev" && t.Class == 'b':
		op.Result = t
		op.F = func(a, _, _, _ uint64) uint64 { return bits.Reverse64(a) >> (64 - t.Bits) }
	case o.base == "bfind" && t.Class != 'b':
		amount := o.take("shiftamt")
		op.F = func(a, _, _, _ uint64) uint64 { return highest(t, a, amount) }
	default:
		return op, false
	}
	return op, true
}

// highest returns the position of the most significant bit that is not a sign.
func highest(t Type, a uint64, amount bool) uint64 {
	if t.signed(a) < 0 && t.Class == 's' {
		a = ^a & t.Mask()
	}
	if a == 0 {
		return 0xffffffff
	}
	at := bits.Len64(a) - 1
	if amount {
		at = t.Bits - 1 - at
	}
	return uint64(at)
}

// field finds bfe, bfi, prmt and shf.
func (o *opcode) field(t Type) (Operation, bool) {
	u32 := types["u32"]
	op := Operation{Result: t}
	switch {
	case o.base == "bfe" && t.Class != 'b' && t.Bits >= 32:
		op.Args = []Type{t, u32, u32}
		op.F = func(a, b, c, _ uint64) uint64 { return extract(t, a, int(b&0xff), int(c&0xff)) }
	case o.base == "bfi" && t.Class == 'b' && t.Bits >= 32:
		op.Args = []Type{t, t, u32, u32}
		op.F = func(a, b, c, d uint64) uint64 {
			mask := (uint64(1)<<(d&0xff) - 1) << (c & 0xff) & t.Mask()
			return b&^mask | a<<(c&0xff)&mask
		}
	case o.base == "prmt" && t.Name == "b32":
		op.Args = []Type{t, t, u32}
		op.F = permute
	case o.base == "shf" && len(o.types) == 1 && t.Name == "b32":
		return o.funnel(t)
	default:
		return op, false
	}
	return op, true
}

// extract returns a field of length bits from pos on. A signed type repeats
// the field's highest bit above it.
func extract(t Type, a uint64, pos, length int) uint64 {
	var sign uint64
	if t.Class == 's' && length > 0 {
		sign = a >> min(pos+length-1, t.Bits-1) & 1
	}
	field := a >> pos & (1<<length - 1)
	if sign == 1 {
		if kept := min(length, max(t.Bits-pos, 0)); kept < 64 {
			field |= ^uint64(0) << kept
		}
	}
	return field & t.Mask()
}

// permute is prmt in its general form: each result byte by four bits of c.
func permute(a, b, c, _ uint64) uint64 {
	all := a | b<<32
	var d uint64
	for i := range 4 {
		choice := c >> (4 * i) & 0xf
		v := all >> (8 * (choice & 7)) & 0xff
		if choice&8 != 0 {
			v = uint64(uint8(int8(v) >> 7))
		}
		d |= v << (8 * i)
	}
	return d
}

// funnel finds shf: 32 bits out of two registers.
func (o *opcode) funnel(t Type) (Operation, bool) {
	op := Operation{Result: t, Args: []Type{t, t, types["u32"]}}
	left := o.take("l")
	if !left && !o.take("r") {
		return op, false
	}
	distance := func(c uint64) uint64 { return min(c, 32) }
	if o.take("wrap") {
		distance = func(c uint64) uint64 { return c & 31 }
	} else if !o.take("clamp") {
		return op, false
	}
	op.F = func(a, b, c, _ uint64) uint64 {
		all := b<<32 | a
		if left {
			return all << distance(c) >> 32
		}
		return all >> distance(c) & t.Mask()
	}
	return op, true
}
