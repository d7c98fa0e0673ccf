package scalar

import "math"

// The NaNs that devices make.
const (
	singleNaN = 0x7fffffff
	doubleNaN = 0xfff8000000000000
)

func single(a uint64) float32 { return math.Float32frombits(uint32(a)) }
func double(a uint64) float64 { return math.Float64frombits(a) }

func fromSingle(v float32) uint64 {
	if v != v {
		return singleNaN
	}
	return uint64(math.Float32bits(v))
}

func fromDouble(v float64) uint64 {
	if v != v {
		return doubleNaN
	}
	return math.Float64bits(v)
}

// float finds arithmetic on f32 and f64, which rounds to nearest even.
func (o *opcode) float() (Operation, bool) {
	t := o.types[0]
	rounded := o.take("rn")
	saturate := o.take("sat") && t.Bits == 32
	op := Operation{Result: t}
	operands := 0
	switch t.Bits {
	case 32:
		op.F, operands = singles(o.base, rounded)
	case 64:
		op.F, operands = doubles(o.base, rounded)
	}
	op.Args = []Type{t, t, t}[:operands]
	if op.F == nil {
		return op, false
	}
	if saturate {
		op = after(op, func(a uint64) uint64 {
			return fromSingle(max(0, min(1, ordered(single(a)))))
		})
	}
	return op, true
}

// ordered is zero for a NaN, and v otherwise.
func ordered(v float32) float32 {
	if v != v {
		return 0
	}
	return v
}

// singles returns the function of an f32 instruction. Those that round must
// say so if they have no default.
func singles(base string, rounded bool) (f Function, operands int) {
	switch base {
	case "add":
		return func(a, b, _, _ uint64) uint64 { return fromSingle(single(a) + single(b)) }, 2
	case "sub":
		return func(a, b, _, _ uint64) uint64 { return fromSingle(single(a) - single(b)) }, 2
	case "mul":
		return func(a, b, _, _ uint64) uint64 { return fromSingle(single(a) * single(b)) }, 2
	case "min":
		return func(a, b, _, _ uint64) uint64 {
			return fromSingle(float32(lesser(float64(single(a)), float64(single(b)))))
		}, 2
	case "max":
		return func(a, b, _, _ uint64) uint64 {
			return fromSingle(float32(greater(float64(single(a)), float64(single(b)))))
		}, 2
	case "abs":
		return func(a, _, _, _ uint64) uint64 { return a &^ (1 << 31) }, 1
	case "neg":
		return func(a, _, _, _ uint64) uint64 { return a ^ 1<<31 }, 1
	case "copysign":
		return func(a, b, _, _ uint64) uint64 { return b&^(1<<31) | a&(1<<31) }, 2
	}
	if !rounded {
		return nil, 0
	}
	switch base {
	case "fma", "mad":
		return func(a, b, c, _ uint64) uint64 { return fromSingle(FMA32(single(a), single(b), single(c))) }, 3
	case "div":
		return func(a, b, _, _ uint64) uint64 { return fromSingle(single(a) / single(b)) }, 2
	case "rcp":
		return func(a, _, _, _ uint64) uint64 { return fromSingle(1 / single(a)) }, 1
	case "sqrt":
		// The root of a float32, rounded to 53 bits and then to 24, is the correctly rounded one.
		return func(a, _, _, _ uint64) uint64 { return fromSingle(float32(math.Sqrt(float64(single(a))))) }, 1
	}
	return nil, 0
}

// doubles returns the function of an f64 instruction.
func doubles(base string, rounded bool) (f Function, operands int) {
	switch base {
	case "add":
		return func(a, b, _, _ uint64) uint64 { return fromDouble(double(a) + double(b)) }, 2
	case "sub":
		return func(a, b, _, _ uint64) uint64 { return fromDouble(double(a) - double(b)) }, 2
	case "mul":
		return func(a, b, _, _ uint64) uint64 { return fromDouble(double(a) * double(b)) }, 2
	case "min":
		return func(a, b, _, _ uint64) uint64 { return fromDouble(lesser(double(a), double(b))) }, 2
	case "max":
		return func(a, b, _, _ uint64) uint64 { return fromDouble(greater(double(a), double(b))) }, 2
	case "abs":
		return func(a, _, _, _ uint64) uint64 { return a &^ (1 << 63) }, 1
	case "neg":
		return func(a, _, _, _ uint64) uint64 { return a ^ 1<<63 }, 1
	case "copysign":
		return func(a, b, _, _ uint64) uint64 { return b&^(1<<63) | a&(1<<63) }, 2
	}
	if !rounded {
		return nil, 0
	}
	switch base {
	case "fma", "mad":
		return func(a, b, c, _ uint64) uint64 { return fromDouble(math.FMA(double(a), double(b), double(c))) }, 3
	case "div":
		return func(a, b, _, _ uint64) uint64 { return fromDouble(double(a) / double(b)) }, 2
	case "rcp":
		return func(a, _, _, _ uint64) uint64 { return fromDouble(1 / double(a)) }, 1
	case "sqrt":
		return func(a, _, _, _ uint64) uint64 { return fromDouble(math.Sqrt(double(a))) }, 1
	}
	return nil, 0
}

// lesser is min: a NaN loses, and -0 is less than +0.
func lesser(a, b float64) float64 {
	if a != a {
		return b
	}
	if b != b {
		return a
	}
	return math.Min(a, b)
}

// greater is max: a NaN loses, and +0 is greater than -0.
func greater(a, b float64) float64 {
	if a != a {
		return b
	}
	if b != b {
		return a
	}
	return math.Max(a, b)
}

// FMA32 returns a*b+c, rounded once.
func FMA32(a, b, c float32) float32 {
	product := float64(a) * float64(b) // exact: 48 bits
	third := float64(c)
	sum := product + third
	bits := math.Float64bits(sum)
	if bits&1 == 1 || bits>>52&0x7ff == 0x7ff {
		return float32(sum)
	}
	// What the sum has lost decides a tie of the second rounding: make the sum
	// odd, away from zero or towards it.
	virtual := sum - product
	lost := (product - (sum - virtual)) + (third - virtual)
	switch {
	case lost == 0:
	case (lost > 0) == (sum > 0):
		bits++
	default:
		bits--
	}
	return float32(math.Float64frombits(bits))
}

// flushed makes subnormal f32 operands and results zero, with their sign.
func flushed(op Operation) Operation {
	flush := func(a uint64) uint64 {
		if a&0x7f800000 == 0 {
			return a & 0x80000000
		}
		return a
	}
	f, args := op.F, op.Args
	op.F = func(a, b, c, d uint64) uint64 {
		v := [4]uint64{a, b, c, d}
		for i, t := range args {
			if t.Name == "f32" {
				v[i] = flush(v[i])
			}
		}
		return f(v[0], v[1], v[2], v[3])
	}
	if op.Result.Name == "f32" {
		op = after(op, flush)
	}
	return op
}

// after applies a function to the result of an operation.
func after(op Operation, last func(uint64) uint64) Operation {
	f := op.F
	op.F = func(a, b, c, d uint64) uint64 { return last(f(a, b, c, d)) }
	return op
}
