package scalar

import "math/bits"

type signed interface{ int16 | int32 | int64 }
type unsigned interface{ uint16 | uint32 | uint64 }

// integer finds arithmetic on integers.
func (o *opcode) integer() (Operation, bool) {
	t := o.types[0]
	if t.Class == 'b' {
		return Operation{}, false
	}
	if o.base == "mul" || o.base == "mad" {
		return o.product(t)
	}
	if o.base == "mul24" || o.base == "mad24" {
		return o.product24(t)
	}
	op := Operation{Result: t, Args: []Type{t, t}}
	if o.take("sat") {
		op.F = saturating(o.base, t)
		return op, op.F != nil
	}
	switch t.Bits {
	case 16:
		op.F = arithmetic[int16, uint16](o.base, t)
	case 32:
		op.F = arithmetic[int32, uint32](o.base, t)
	case 64:
		op.F = arithmetic[int64, uint64](o.base, t)
	}
	if op.F != nil {
		op.Divide = o.base == "div" || o.base == "rem"
		return op, true
	}
	return o.other(t)
}

// arithmetic returns functions of two operands of one type.
func arithmetic[S signed, U unsigned](base string, t Type) Function {
	switch base {
	case "add":
		return func(a, b, _, _ uint64) uint64 { return uint64(U(a) + U(b)) }
	case "sub":
		return func(a, b, _, _ uint64) uint64 { return uint64(U(a) - U(b)) }
	}
	if t.Class == 's' {
		return signedOnly[S, U](base)
	}
	switch base {
	case "div":
		return func(a, b, _, _ uint64) uint64 { return uint64(U(a) / U(b)) }
	case "rem":
		return func(a, b, _, _ uint64) uint64 { return uint64(U(a) % U(b)) }
	case "min":
		return func(a, b, _, _ uint64) uint64 { return uint64(min(U(a), U(b))) }
	case "max":
		return func(a, b, _, _ uint64) uint64 { return uint64(max(U(a), U(b))) }
	}
	return nil
}

func signedOnly[S signed, U unsigned](base string) Function {
	switch base {
	case "div":
		return func(a, b, _, _ uint64) uint64 { return uint64(U(S(a) / S(b))) }
	case "rem":
		return func(a, b, _, _ uint64) uint64 { return uint64(U(S(a) % S(b))) }
	case "min":
		return func(a, b, _, _ uint64) uint64 { return uint64(U(min(S(a), S(b)))) }
	case "max":
		return func(a, b, _, _ uint64) uint64 { return uint64(U(max(S(a), S(b)))) }
	}
	return nil
}

// saturating returns add.sat.s32 and sub.sat.s32.
func saturating(base string, t Type) Function {
	clamp := func(v int64) uint64 { return uint64(uint32(min(max(v, -1<<31), 1<<31-1))) }
	if t.Name != "s32" {
		return nil
	}
	switch base {
	case "add":
		return func(a, b, _, _ uint64) uint64 { return clamp(int64(int32(a)) + int64(int32(b))) }
	case "sub":
		return func(a, b, _, _ uint64) uint64 { return clamp(int64(int32(a)) - int64(int32(b))) }
	}
	return nil
}

// product finds mul and mad, of which the part is low, high or both.
func (o *opcode) product(t Type) (Operation, bool) {
	op := Operation{Result: t, Args: []Type{t, t, t}}
	var two Function
	switch {
	case o.take("lo"):
		two = func(a, b, _, _ uint64) uint64 { return a * b }
	case o.take("hi"):
		two = high(t)
	case o.take("wide") && t.Bits < 64:
		op.Result = types[map[int]string{16: "u32", 32: "u64"}[t.Bits]]
		op.Args[2] = op.Result
		two = func(a, b, _, _ uint64) uint64 { return uint64(t.signed(a) * t.signed(b)) }
	default:
		return op, false
	}
	mask := op.Result.Mask()
	if o.base == "mul" {
		op.Args = op.Args[:2]
		op.F = func(a, b, _, _ uint64) uint64 { return two(a, b, 0, 0) & mask }
		return op, t.Bits > 8
	}
	op.F = func(a, b, c, _ uint64) uint64 { return (two(a, b, 0, 0) + c) & mask }
	return op, t.Bits > 8
}

// high returns the upper half of a product.
func high(t Type) Function {
	if t.Bits < 64 {
		return func(a, b, _, _ uint64) uint64 { return uint64(t.signed(a)*t.signed(b)) >> t.Bits }
	}
	return func(a, b, _, _ uint64) uint64 {
		h, _ := bits.Mul64(a, b)
		if t.Class == 's' {
			h -= uint64(int64(a)>>63)&b + uint64(int64(b)>>63)&a
		}
		return h
	}
}

// product24 finds mul24.lo and mad24.lo: the low 24 bits of each factor count.
func (o *opcode) product24(t Type) (Operation, bool) {
	if t.Bits != 32 || !o.take("lo") {
		return Operation{}, false
	}
	two := func(a, b, _, _ uint64) uint64 { return a & 0xffffff * (b & 0xffffff) }
	if t.Class == 's' {
		two = func(a, b, _, _ uint64) uint64 {
			return uint64(int64(a<<40) >> 40 * (int64(b<<40) >> 40))
		}
	}
	if o.base == "mul24" {
		return Operation{Result: t, Args: []Type{t, t}, F: func(a, b, _, _ uint64) uint64 { return two(a, b, 0, 0) & t.Mask() }}, true
	}
	return Operation{Result: t, Args: []Type{t, t, t}, F: func(a, b, c, _ uint64) uint64 { return (two(a, b, 0, 0) + c) & t.Mask() }}, true
}

// other finds abs, neg and sad.
func (o *opcode) other(t Type) (Operation, bool) {
	op := Operation{Result: t, Args: []Type{t}}
	switch {
	case t.Bits == 8:
		return op, false
	case o.base == "neg" && t.Class == 's':
		op.F = func(a, _, _, _ uint64) uint64 { return -a & t.Mask() }
	case o.base == "abs" && t.Class == 's':
		op.F = func(a, _, _, _ uint64) uint64 {
			if t.signed(a) < 0 {
				a = -a
			}
			return a & t.Mask()
		}
	case o.base == "sad":
		op.Args = []Type{t, t, t}
		op.F = func(a, b, c, _ uint64) uint64 {
			lower := t.signed(a) < t.signed(b)
			if t.Class == 'u' {
				lower = a < b
			}
			if lower {
				a, b = b, a
			}
			return (a - b + c) & t.Mask()
		}
	default:
		return op, false
	}
	return op, true
}
