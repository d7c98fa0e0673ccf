package scalar

import (
	"cmp"
	"fmt"
	"strings"
)

// Compare returns the comparison of an instruction such as setp.lt.f32, the
// type that it compares, and the boolean operation (and, or, xor or empty)
// that joins it with a third operand.
func Compare(parts []string, s Settings) (compare func(a, b uint64) bool, t Type, join string, err error) {
	o := divide(parts)
	name := strings.Join(parts, ".")
	unknown := fmt.Errorf("unknown instruction %s", name)
	if o.take("ftz") {
		return nil, t, "", fmt.Errorf("instruction %s is refused: it flushes subnormal numbers", name)
	}
	for _, boolean := range []string{"and", "or", "xor"} {
		if o.take(boolean) {
			join = boolean
		}
	}
	if len(o.types) != 1 || len(o.modifiers) != 1 || o.types[0].Bits < 16 || o.types[0].Name == "f16" {
		return nil, t, "", unknown
	}
	t = o.types[0]
	relation := o.modifiers[0]
	switch t.Class {
	case 'f':
		compare = floatComparison(relation, t)
	case 's':
		compare = signedComparison(relation, t)
	default:
		compare = unsignedComparison(relation)
	}
	if compare == nil {
		return nil, t, "", unknown
	}
	return compare, t, join, nil
}

// relations are the results of a three-way comparison that make each relation true.
func relations(name string) func(int) bool {
	switch name {
	case "eq":
		return func(c int) bool { return c == 0 }
	case "ne":
		return func(c int) bool { return c != 0 }
	case "lt", "lo":
		return func(c int) bool { return c < 0 }
	case "le", "ls":
		return func(c int) bool { return c <= 0 }
	case "gt", "hi":
		return func(c int) bool { return c > 0 }
	case "ge", "hs":
		return func(c int) bool { return c >= 0 }
	}
	return nil
}

func unsignedComparison(relation string) func(a, b uint64) bool {
	switch relation {
	case "eq":
		return func(a, b uint64) bool { return a == b }
	case "ne":
		return func(a, b uint64) bool { return a != b }
	case "lt", "lo":
		return func(a, b uint64) bool { return a < b }
	case "le", "ls":
		return func(a, b uint64) bool { return a <= b }
	case "gt", "hi":
		return func(a, b uint64) bool { return a > b }
	case "ge", "hs":
		return func(a, b uint64) bool { return a >= b }
	}
	return nil
}

// signedComparison moves the sign so that unsigned order is signed order.
func signedComparison(relation string, t Type) func(a, b uint64) bool {
	unsigned := unsignedComparison(relation)
	if unsigned == nil || len(relation) == 2 && strings.Contains("lo ls hi hs", relation) {
		return nil
	}
	sign := uint64(1) << (t.Bits - 1)
	return func(a, b uint64) bool { return unsigned(a^sign, b^sign) }
}

// floatComparison knows num and nan, and relations that are true (with a u
// at the end) or false for a NaN.
func floatComparison(relation string, t Type) func(a, b uint64) bool {
	value := double
	if t.Bits == 32 {
		value = func(a uint64) float64 { return float64(single(a)) }
	}
	isNaN := func(a, b uint64) bool { return value(a) != value(a) || value(b) != value(b) }
	switch relation {
	case "num":
		return func(a, b uint64) bool { return !isNaN(a, b) }
	case "nan":
		return isNaN
	}
	name, unordered := strings.CutSuffix(relation, "u")
	if relation == "lo" || relation == "ls" || relation == "hi" || relation == "hs" {
		return nil
	}
	holds := relations(name)
	if holds == nil || unordered && strings.Contains("lo ls hi hs", name) {
		return nil
	}
	return func(a, b uint64) bool {
		if isNaN(a, b) {
			return unordered
		}
		return holds(cmp.Compare(value(a), value(b)))
	}
}
