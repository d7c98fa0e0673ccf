package scalar

import (
	"math"
	"math/big"
	"slices"
)

// conversion finds cvt.
func conversion(t []Type, modifiers []string) (Operation, bool) {
	if len(t) != 2 || t[0].Class == 'b' || t[1].Class == 'b' {
		return Operation{}, false
	}
	to, from := t[0], t[1]
	mode, saturate := "", false
	for _, m := range modifiers {
		switch {
		case m == "sat":
			saturate = true
		case slices.Contains([]string{"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"}, m) && mode == "":
			mode = m
		default:
			return Operation{}, false
		}
	}
	op := Operation{Result: to, Args: []Type{from}}
	switch {
	case to.Class != 'f' && from.Class != 'f':
		op.F = integerToInteger(to, from, saturate)
	case to.Class != 'f':
		op.F = floatToInteger(to, from, mode)
	case from.Class != 'f':
		op.F = integerToFloat(to, from, mode)
	default:
		op.F = floatToFloat(to, from, mode)
	}
	if op.F != nil && saturate && to.Class == 'f' {
		op = after(op, func(a uint64) uint64 {
			return pack(to, max(0, min(1, orderedDouble(unpack(to, a)))))
		})
	}
	return op, op.F != nil
}

func orderedDouble(v float64) float64 {
	if v != v {
		return 0
	}
	return v
}

func integerToInteger(to, from Type, saturate bool) Function {
	return func(a, _, _, _ uint64) uint64 {
		v := from.signed(a)
		if !saturate {
			return uint64(v) & to.Mask()
		}
		return saturateInteger(to, v, from.Class == 'u' && v < 0)
	}
}

// saturateInteger clamps v; huge says that v is an unsigned value above all int64.
func saturateInteger(to Type, v int64, huge bool) uint64 {
	low, high := int64(0), int64(to.Mask())
	if to.Class == 's' {
		low, high = -1<<(to.Bits-1), 1<<(to.Bits-1)-1
	}
	if to.Name == "u64" {
		if huge {
			return uint64(v)
		}
		return uint64(max(v, 0))
	}
	if huge {
		return uint64(high) & to.Mask()
	}
	return uint64(min(max(v, low), high)) & to.Mask()
}

// round is the integer next to v in a direction.
func round(v float64, mode string) (float64, bool) {
	switch mode {
	case "rni":
		return math.RoundToEven(v), true
	case "rzi":
		return math.Trunc(v), true
	case "rmi":
		return math.Floor(v), true
	case "rpi":
		return math.Ceil(v), true
	}
	return v, false
}

// floatToInteger clamps to the range of the integer. A NaN becomes zero.
func floatToInteger(to, from Type, mode string) Function {
	if _, ok := round(0, mode); !ok {
		return nil
	}
	return func(a, _, _, _ uint64) uint64 {
		v, _ := round(unpack(from, a), mode)
		if v != v {
			return 0
		}
		if to.Class == 's' {
			limit := math.Ldexp(1, to.Bits-1)
			if v >= limit {
				return 1<<(to.Bits-1) - 1
			}
			return uint64(int64(max(v, -limit))) & to.Mask()
		}
		if v >= math.Ldexp(1, to.Bits) {
			return to.Mask()
		}
		if v <= 0 {
			return 0
		}
		return uint64(v)
	}
}

// integerToFloat rounds once.
func integerToFloat(to, from Type, mode string) Function {
	switch {
	case mode == "rn" && to.Bits == 32 && from.Class == 's':
		return func(a, _, _, _ uint64) uint64 { return fromSingle(float32(from.signed(a))) }
	case mode == "rn" && to.Bits == 32:
		return func(a, _, _, _ uint64) uint64 { return fromSingle(float32(a)) }
	case mode == "rn" && to.Bits == 64 && from.Class == 's':
		return func(a, _, _, _ uint64) uint64 { return fromDouble(float64(from.signed(a))) }
	case mode == "rn" && to.Bits == 64:
		return func(a, _, _, _ uint64) uint64 { return fromDouble(float64(a)) }
	case mode != "rn" && mode != "rz" && mode != "rm" && mode != "rp" || to.Bits == 16:
		return nil
	}
	return func(a, _, _, _ uint64) uint64 {
		exact := new(big.Float).SetPrec(64).SetUint64(a)
		if from.Class == 's' {
			exact.SetInt64(from.signed(a))
		}
		return directed(to, exact, mode)
	}
}

// directed rounds an exact value to a float in a direction.
func directed(to Type, exact *big.Float, mode string) uint64 {
	modes := map[string]big.RoundingMode{"rn": big.ToNearestEven, "rz": big.ToZero, "rm": big.ToNegativeInf, "rp": big.ToPositiveInf}
	precision := uint(53)
	if to.Bits == 32 {
		precision = 24
	}
	v, _ := new(big.Float).SetPrec(precision).SetMode(modes[mode]).Set(exact).Float64()
	return pack(to, v)
}

// floatToFloat narrows in a direction, widens, or rounds to an integer.
func floatToFloat(to, from Type, mode string) Function {
	if _, ok := round(0, mode); ok && to == from {
		return func(a, _, _, _ uint64) uint64 {
			v, _ := round(unpack(from, a), mode)
			return pack(to, v)
		}
	}
	switch {
	case to.Bits >= from.Bits && mode == "":
		return func(a, _, _, _ uint64) uint64 { return pack(to, unpack(from, a)) }
	case to.Bits >= from.Bits:
		return nil
	case mode == "rn":
		return func(a, _, _, _ uint64) uint64 { return pack(to, unpack(from, a)) }
	case mode == "rz" || mode == "rm" || mode == "rp":
		return func(a, _, _, _ uint64) uint64 { return narrow(to, unpack(from, a), mode) }
	}
	return nil
}

// narrow corrects the nearest float if it lies on the wrong side of v.
func narrow(to Type, v float64, mode string) uint64 {
	bits := pack(to, v)
	if v != v || math.IsInf(v, 0) {
		return bits
	}
	near := unpack(to, bits)
	down := mode == "rm" || mode == "rz" && v > 0
	up := mode == "rp" || mode == "rz" && v < 0
	sign := bits >> (to.Bits - 1) & 1
	switch {
	case down && near > v:
		return next(to, bits, sign == 1)
	case up && near < v:
		return next(to, bits, sign == 0)
	}
	return bits
}

// next is the neighbour of a float, away from zero or towards it. Only a
// value that rounds to zero leaves zero, with its sign.
func next(_ Type, bits uint64, away bool) uint64 {
	if away {
		return bits + 1
	}
	return bits - 1
}

func unpack(t Type, a uint64) float64 {
	switch t.Bits {
	case 16:
		return fromHalf(uint16(a))
	case 32:
		return float64(single(a))
	}
	return double(a)
}

// pack rounds to nearest even.
func pack(t Type, v float64) uint64 {
	switch t.Bits {
	case 16:
		return uint64(toHalf(v))
	case 32:
		return fromSingle(float32(v))
	}
	return fromDouble(v)
}

// fromHalf widens an f16, exactly.
func fromHalf(h uint16) float64 {
	exponent, fraction := int(h>>10&0x1f), float64(h&0x3ff)
	var v float64
	switch exponent {
	case 0:
		v = math.Ldexp(fraction, -24)
	case 31:
		v = math.Inf(1)
		if fraction != 0 {
			return math.NaN()
		}
	default:
		v = math.Ldexp(1024+fraction, exponent-25)
	}
	return math.Copysign(v, -float64(h>>15)*2+1)
}

// toHalf rounds to nearest even, once.
func toHalf(v float64) uint16 {
	if v != v {
		return 0x7fff
	}
	var sign uint16
	if math.Signbit(v) {
		sign = 1 << 15
	}
	v = math.Abs(v)
	if v >= 65520 {
		return sign | 0x7c00
	}
	_, exponent := math.Frexp(v) // v is in [2^(exponent-1), 2^exponent)
	exponent = max(exponent, -13)
	units := math.RoundToEven(math.Ldexp(v, 11-exponent)) // up to 2048; below 1024 if subnormal
	return sign | uint16(int(units)+(exponent+13)<<10)
}
