package cpu

import (
	"math"

	"github.com/plx-run/plx/trainer/executor/memory"
)

// loops holds an elementwise operation in three forms: for two vectors of
// equal length (vv), a vector and a number (vs), and a number and a vector
// (sv). out may be the same memory as one of the vectors.
type loops[T float] struct {
	vv func(out, a, b []T)
	vs func(out, a []T, s T)
	sv func(out []T, s T, b []T)
}

// run computes an elementwise operation. An operand of one element is combined
// with every element of the other operand.
func (l loops[T]) run(out, a, b []T) {
	switch {
	case len(a) == len(b):
		l.vv(out, a, b)
	case len(b) == 1:
		l.vs(out, a, b[0])
	default:
		l.sv(out, a[0], b)
	}
}

// newSpread returns the kernel of an elementwise operation whose operands are
// repeated (broadcast) along some dimensions. The kernel computes row by row.
// A row covers as many of the last dimensions as possible. Within a row, each
// operand is either one repeated element or a run of adjacent elements.
func newSpread[T float](shape []int, strides [2][]int, out, a, b *cell[T], l loops[T]) func() {
	d, width := len(shape), 1
	even := func(s []int, i, width int, one bool) bool {
		return shape[i] == 1 || one && s[i] == 0 || !one && s[i] == width
	}
	last := d - 1
	for last > 0 && shape[last] == 1 {
		last--
	}
	oneA, oneB := strides[0][last] == 0, strides[1][last] == 0 // true if operand a or b has the same element in a whole row
	for d > 0 && even(strides[0], d-1, width, oneA) && even(strides[1], d-1, width, oneB) {
		d--
		width *= shape[d]
	}
	var rows [][2]int // offsets at which operands a and b begin in each row
	index := make([]int, d)
	for range memory.Elements(shape[:d]) {
		rows = append(rows, [2]int{memory.Offset(index, strides[0]), memory.Offset(index, strides[1])})
		memory.Advance(index, shape)
	}
	return func() {
		for i, at := range rows {
			row, a, b := out.data[i*width:(i+1)*width], a.data[at[0]:], b.data[at[1]:]
			switch {
			case oneA && oneB:
				l.vv(row[:1], a[:1], b[:1])
				fill(row, row[0])
			case oneA:
				l.sv(row, a[0], b[:width])
			case oneB:
				l.vs(row, a[:width], b[0])
			default:
				l.vv(row, a[:width], b[:width])
			}
		}
	}
}

// binaryLoops returns the loops of one of Gorgonia's binary operations, named
// by its operator.
func binaryLoops[T float](code string) loops[T] {
	return map[string]loops[T]{
		"+":  {addVV[T], addVS[T], func(out []T, s T, b []T) { addVS(out, b, s) }},
		"-":  {subVV[T], func(out, a []T, s T) { addVS(out, a, -s) }, subSV[T]},
		"⊙":  {mulVV[T], mulVS[T], func(out []T, s T, b []T) { mulVS(out, b, s) }},
		"÷":  {divVV[T], divVS[T], divSV[T]},
		"^":  loopsOf(power[T]),
		"<":  {lessVV[T], lessVS[T], func(out []T, s T, b []T) { moreVS(out, b, s) }},
		">":  {func(out, a, b []T) { lessVV(out, b, a) }, moreVS[T], func(out []T, s T, b []T) { lessVS(out, b, s) }},
		"<=": {upToVV[T], upToVS[T], func(out []T, s T, b []T) { fromVS(out, b, s) }},
		">=": {func(out, a, b []T) { upToVV(out, b, a) }, fromVS[T], func(out []T, s T, b []T) { upToVS(out, b, s) }},
		"==": loopsOf(func(x, y T) T { return one[T](x == y) }),
		"!=": loopsOf(func(x, y T) T { return one[T](x != y) }),
	}[code]
}

// loopsOf returns loops that call f for every element.
func loopsOf[T float](f func(x, y T) T) loops[T] {
	return loops[T]{
		vv: func(out, a, b []T) {
			a, b = a[:len(out)], b[:len(out)]
			for i := range out {
				out[i] = f(a[i], b[i])
			}
		},
		vs: func(out, a []T, s T) {
			a = a[:len(out)]
			for i := range out {
				out[i] = f(a[i], s)
			}
		},
		sv: func(out []T, s T, b []T) {
			b = b[:len(out)]
			for i := range out {
				out[i] = f(s, b[i])
			}
		},
	}
}

func power[T float](x, y T) T { return T(math.Pow(float64(x), float64(y))) }

// one returns 1 for true and 0 for false.
func one[T float](b bool) T {
	i := 0
	if b {
		i = 1
	}
	return T(i)
}

func addVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] + b[i]
	}
}

func addVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = a[i] + s
	}
}

func subVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] - b[i]
	}
}

func subSV[T float](out []T, s T, b []T) {
	b = b[:len(out)]
	for i := range out {
		out[i] = s - b[i]
	}
}

func mulVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] * b[i]
	}
}

func mulVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = a[i] * s
	}
}

func divVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] / b[i]
	}
}

func divVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = a[i] / s
	}
}

func divSV[T float](out []T, s T, b []T) {
	b = b[:len(out)]
	for i := range out {
		out[i] = s / b[i]
	}
}

// The comparisons below return 1 or 0 without a branch, because the processor
// would often predict the branch wrongly.

func lessVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = one[T](a[i] < b[i])
	}
}

func upToVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = one[T](a[i] <= b[i])
	}
}

func lessVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = one[T](a[i] < s)
	}
}

func upToVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = one[T](a[i] <= s)
	}
}

func moreVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = one[T](a[i] > s)
	}
}

func fromVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = one[T](a[i] >= s)
	}
}

func minVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = min(a[i], b[i])
	}
}

func maxVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = max(a[i], b[i])
	}
}
