package cpu

import (
	"math"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/memory"
)

// reduction is a sum or a maximum over some dimensions. It reads the input
// once, row by row, in the order of memory. newReduction computes in advance
// for each row the element of the result to which the row belongs.
type reduction[T float] struct {
	out, a *cell[T]
	width  int                 // number of elements in a row of the input
	along  bool                // if true, a row is reduced to one element; if false, a row is combined element by element with a row of the result
	rows   []int               // for each row of the input, the offset in the result of the element or row to which it is reduced
	first  []bool              // for each row of the input, true if no earlier row is reduced to the same element or row of the result
	row    func(a []T) T       // reduces a row to one element
	two    func(out, a, b []T) // reduces rows a and b element by element to row out
	pair   func(x, y T) T      // reduces two elements to one
}

func (k *reduction[T]) run() {
	out, a := k.out.data, k.a.data
	for i, at := range k.rows {
		from := a[i*k.width : (i+1)*k.width]
		switch {
		case k.along && k.first[i]:
			out[at] = k.row(from)
		case k.along:
			out[at] = k.pair(out[at], k.row(from))
		case k.first[i]:
			copy(out[at:at+k.width], from)
		default:
			k.two(out[at:at+k.width], out[at:at+k.width], from)
		}
	}
}

// newReduction returns the kernel that reduces a tensor of the given shape
// along axes. If axes is empty, it reduces over all dimensions. The kernel
// computes the sum if sum is true, otherwise the maximum.
func newReduction[T float](shape, axes []int, sum bool, out, a *cell[T]) func() {
	k := &reduction[T]{out: out, a: a, row: maxRow[T], two: maxVV[T], pair: func(x, y T) T { return max(x, y) }}
	if sum {
		k.row, k.two, k.pair = sumRow[T], addVV[T], func(x, y T) T { return x + y }
	}
	reduced := make([]bool, len(shape))
	for i := range reduced {
		reduced[i] = len(axes) == 0
	}
	for _, x := range axes {
		reduced[x] = true
	}
	d := len(shape)
	k.width, k.along = 1, d == 0 || reduced[d-1]
	for d > 0 && reduced[d-1] == k.along {
		d--
		k.width *= shape[d]
	}
	k.lay(shape, reduced, d)
	return k.run
}

// lay computes, for each row of the input, its offset in the result.
// reduced[i] is true if dimension i is reduced. d is the number of dimensions
// outside a row.
func (k *reduction[T]) lay(shape []int, reduced []bool, d int) {
	strides, n := make([]int, len(shape)), 1
	for i := len(shape) - 1; i >= 0; i-- {
		if !reduced[i] {
			strides[i] = n
			n *= shape[i]
		}
	}
	seen := map[int]bool{}
	index := make([]int, d)
	for range memory.Elements(shape[:d]) {
		at := memory.Offset(index, strides)
		k.rows, k.first = append(k.rows, at), append(k.first, !seen[at])
		seen[at] = true
		memory.Advance(index, shape)
	}
}

// sumRow returns the sum of a. It adds in double precision, in four separate
// sums of every fourth element.
func sumRow[T float](a []T) T {
	var s0, s1, s2, s3 float64
	for len(a) >= 4 {
		s0 += float64(a[0])
		s1 += float64(a[1])
		s2 += float64(a[2])
		s3 += float64(a[3])
		a = a[4:]
	}
	for _, x := range a {
		s0 += float64(x)
	}
	return T((s0 + s1) + (s2 + s3))
}

// maxRow returns the largest element, or NaN if one element is NaN.
func maxRow[T float](a []T) T {
	m := a[0]
	for _, x := range a[1:] {
		if !(x <= m) {
			if m != m {
				return m
			}
			m = x
		}
	}
	return m
}

// dot returns the dot product of a and b. It adds in double precision and in
// the same order as sumRow.
func dot[T float](a, b []T) float64 {
	var s0, s1, s2, s3 float64
	b = b[:len(a)]
	for len(a) >= 4 && len(b) >= 4 {
		s0 += float64(float64(a[0]) * float64(b[0]))
		s1 += float64(float64(a[1]) * float64(b[1]))
		s2 += float64(float64(a[2]) * float64(b[2]))
		s3 += float64(float64(a[3]) * float64(b[3]))
		a, b = a[4:], b[4:]
	}
	for i, x := range a {
		s0 += float64(float64(x) * float64(b[i]))
	}
	return (s0 + s1) + (s2 + s3)
}

func fill[T float](out []T, x T) {
	for i := range out {
		out[i] = x
	}
}

// softmax computes one of four functions along an axis: e^x / sum(e^x), its
// logarithm, or the gradient of either.
type softmax[T float] struct {
	out, a   *cell[T] // a is the softmax's operand; for a gradient, a is the softmax's result
	g        *cell[T] // gradient of the softmax's result; nil means to compute the softmax itself
	n, inner int      // number of elements along the axis, and distance in memory between two neighbors among them
	log      bool     // true for the logarithm of the softmax
	exp      func(T) T
}

func newSoftmax[T float](v *compile.Value, out, a, g *cell[T]) func() {
	k := &softmax[T]{out: out, a: a, g: g, log: v.Op.Log, exp: exponential[T]()}
	_, k.n, k.inner = compile.Threefold(v.Shape, v.Op.Axes[0])
	return k.run
}

func exponential[T float]() func(T) T {
	if f, ok := any(exp32).(func(T) T); ok {
		return f
	}
	return any(math.Exp).(func(T) T)
}

func (k *softmax[T]) run() {
	block := k.n * k.inner
	for from := 0; from < len(k.out.data); from += block {
		for i := from; i < from+k.inner; i++ {
			out, a := k.out.data[i:from+block], k.a.data[i:from+block]
			if k.g == nil {
				k.forward(out, a)
			} else {
				k.gradient(out, a, k.g.data[i:from+block])
			}
		}
	}
}

// forward computes the softmax of one line of elements, which lie k.inner
// apart in a. It first subtracts the largest element, so that no exponential
// overflows.
func (k *softmax[T]) forward(out, a []T) {
	m := a[0]
	for i := 0; i < len(a); i += k.inner {
		if a[i] > m || a[i] != a[i] {
			m = a[i]
		}
	}
	var sum float64
	for i := 0; i < len(a); i += k.inner {
		e := k.exp(a[i] - m)
		sum += float64(e)
		out[i] = e
	}
	if k.log {
		total := T(math.Log(sum))
		for i := 0; i < len(a); i += k.inner {
			out[i] = (a[i] - m) - total
		}
		return
	}
	for i := 0; i < len(a); i += k.inner {
		out[i] = T(float64(out[i]) / sum)
	}
}

// gradient computes the gradient of the softmax's operand from the softmax's
// result y and the gradient g of y: y (g - sum(g y)). For the logarithm of the
// softmax it computes g - e^y sum(g).
func (k *softmax[T]) gradient(out, y, g []T) {
	var sum float64
	for i := 0; i < len(y); i += k.inner {
		if k.log {
			sum += float64(g[i])
		} else {
			sum += float64(float64(g[i]) * float64(y[i]))
		}
	}
	s := T(sum)
	for i := 0; i < len(y); i += k.inner {
		if k.log {
			out[i] = g[i] - T(k.exp(y[i])*s)
		} else {
			out[i] = y[i] * (g[i] - s)
		}
	}
}
