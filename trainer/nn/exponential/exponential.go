// Package exponential computes exponentials of many numbers at once.
//
// Numbers of float32 take a third of the time of package math, with an error
// far below the precision of float32. Numbers of float64 take package math.
// NaN stays NaN.
package exponential

import (
	"math"
	"unsafe"

	"github.com/plx-run/plx/trainer/nn/matrix"
)

const (
	log2E = 1.4426950408889634
	ln2   = 0.6931471805599453
	// toWhole rounds a number to a whole one if it is added and subtracted again.
	toWhole = 1.5 * (1 << 52)
)

// quick is e^x for |x| <= 700, with a relative error of 1e-11.
func quick(x float64) float64 {
	t := float64(x*log2E) + toWhole
	r := x - float64((t-toWhole)*ln2)
	// Taylor's series up to r^9 for |r| <= ln(2)/2.
	r2 := r * r
	a := 1 + r
	b := 1.0/2 + float64(r*(1.0/6))
	c := 1.0/24 + float64(r*(1.0/120))
	d := 1.0/720 + float64(r*(1.0/5040))
	e := 1.0/40320 + float64(r*(1.0/362880))
	p := a + float64(r2*(b+float64(r2*(c+float64(r2*(d+float64(r2*e)))))))
	return p * math.Float64frombits((math.Float64bits(t)+1023)<<52)
}

// wide is x in double precision, cut to [low, high]; NaN stays NaN. Zero and
// subnormal numbers become other numbers below 2^-125. It does not use the
// processor's conversion: that writes half a register, needs the other half,
// and so makes each element of a loop wait for the one before.
func wide(x, low, high float32) float64 {
	switch {
	case x < low:
		x = low
	case x > high:
		x = high
	case x != x:
		return math.NaN()
	}
	u := uint64(math.Float32bits(x))
	return math.Float64frombits(u&(1<<31)<<32 | (u&(1<<31-1)<<29 + 896<<52))
}

// Shifted replaces each x by e^(x-most) and returns the sum of the results. No x
// is larger than most.
func Shifted[T matrix.Float](x []T, most T) (sum float64) {
	if unsafe.Sizeof(most) == 8 {
		for i, v := range x {
			x[i] = T(math.Exp(float64(v - most)))
			sum += float64(x[i])
		}
		return sum
	}
	for i, v := range matrix.As[float32](x) {
		e := quick(wide(v-float32(most), -104, 0)) // e^-104 is 0 in float32
		x[i] = T(e)
		sum += e
	}
	return sum
}

// Sigmoids replaces each x by 1/(1+e^-x).
func Sigmoids[T matrix.Float](x []T) {
	if unsafe.Sizeof(T(0)) == 8 {
		for i, v := range x {
			x[i] = T(1 / (1 + math.Exp(-float64(v))))
		}
		return
	}
	for i, v := range matrix.As[float32](x) {
		x[i] = T(1 / (1 + quick(wide(-v, -104, 104))))
	}
}

// Tanhs writes the hyperbolic tangent of each x to the same place of to, which
// may be x itself.
func Tanhs[T matrix.Float](to, x []T) {
	if unsafe.Sizeof(T(0)) == 8 {
		for i, v := range x {
			to[i] = T(math.Tanh(float64(v)))
		}
		return
	}
	for i, v := range matrix.As[float32](x) {
		e := quick(wide(2*v, -40, 40))
		to[i] = T((e - 1) / (e + 1))
	}
}
