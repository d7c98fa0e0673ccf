package cpu

import "math"

// The functions below take a float32 and compute in float64, so that short
// polynomials suffice. The error of a result is at most 0.6 units in the last
// place; the largest measured error is 0.52. Ordinary arguments take no
// branch. Each product is converted to float64 before an addition, which
// forbids the compiler to fuse the product with the addition. So every host
// computes the same bits.

// widen converts a normal, infinite or NaN float32 to float64. Zero and
// subnormal numbers become numbers between 2^-127 and 2^-126. widen avoids the
// processor's conversion instruction. That instruction writes only half of a
// register, so the conversion of each element would wait for that of the
// element before.
func widen(x float32) float64 {
	u := uint64(math.Float32bits(x))
	if u&0x7f800000 == 0x7f800000 {
		return float64(x)
	}
	return math.Float64frombits(u&(1<<31)<<32 | (u&(1<<31-1)<<29 + 896<<52))
}

// tiny reports whether |x| is less than a certain float32. The parameter bound
// has the bits of that float32.
func tiny(x float32, bound uint32) bool {
	return math.Float32bits(x)&(1<<31-1) < bound
}

const (
	belowRounding = 0x33000000 // 2^-25, as the bits of a float32: for smaller x, x + x*x/2 rounds to x
	belowCube     = 0x39000000 // 2^-13, as the bits of a float32: for smaller x, x - x*x*x/3 rounds to x
	tanhIsOne     = 0x411051ec // 9.02, as the bits of a float32: for larger x, tanh(x) rounds to 1
	subnormal     = 0x00800000
)

const (
	log2E = 1.4426950408889634
	ln2   = 0.6931471805599453
	// Adding shift to a number and subtracting it again rounds the number to
	// an integer.
	shift = 1.5 * (1 << 52)
)

// expm1Parts returns s and p such that e^x-1 = s*p + (s-1). s is a power of
// two and |p| < 0.42. |x| must be at most 700.
func expm1Parts(x float64) (s, p float64) {
	t := float64(x*log2E) + shift
	k := t - shift
	r := x - float64(k*ln2)
	// This is Taylor's series of (e^r-1)/r for |r| <= ln(2)/2. The omitted
	// terms change the result by a relative error of less than 6e-10.
	r2 := r * r
	a := 1 + float64(r*(1.0/2))
	b := 1.0/6 + float64(r*(1.0/24))
	c := 1.0/120 + float64(r*(1.0/720))
	d := 1.0/5040 + float64(r*(1.0/40320))
	q := a + float64(r2*(b+float64(r2*(c+float64(r2*d)))))
	s = math.Float64frombits((math.Float64bits(t) + 1023) << 52)
	return s, r * q
}

// exp32 returns e^x.
func exp32(x float32) float32 {
	v := widen(x)
	if !(v < 89) {
		if x != x {
			return x
		}
		return float32(math.Inf(1))
	}
	if v < -104 {
		return 0
	}
	s, p := expm1Parts(v)
	return float32(s + float64(s*p))
}

// expm132 returns e^x-1.
func expm132(x float32) float32 {
	v := widen(x)
	if !(v < 89) {
		if x != x {
			return x
		}
		return float32(math.Inf(1))
	}
	if v < -20 {
		return -1
	}
	if tiny(x, belowRounding) {
		return x
	}
	s, p := expm1Parts(v)
	return float32(float64(s*p) + (s - 1))
}

// tanh32 returns the hyperbolic tangent of x as a quotient of two polynomials
// in x*x. The polynomials were fitted on [0, 9.02] for the least relative
// error, which is 1e-9. For larger |x| the result rounds to 1 or -1.
func tanh32(x float32) float32 {
	u := math.Float32bits(x)
	size := u & (1<<31 - 1)
	if size-belowCube >= tanhIsOne-belowCube { // size is unsigned, so size-belowCube wraps around if size < belowCube, and the condition is true then too
		switch {
		case size < belowCube || x != x:
			return x
		case x < 0:
			return -1
		}
		return 1
	}
	v := math.Float64frombits(uint64(u)&(1<<31)<<32 | (uint64(size)<<29 + 896<<52))
	t := v * v
	p := 0.99999999905863057 + float64(t*(0.13785355974552311+float64(t*(0.0040084983614930295+
		float64(t*(3.1588809322241243e-5+float64(t*5.0761211510339754e-8)))))))
	q := 1 + float64(t*(0.47118688382701725+float64(t*(0.027737474740099538+float64(t*(0.00042073875469200629+
		float64(t*(1.617464548713993e-6+float64(t*7.3742182799759097e-10)))))))))
	return float32(v * p / q)
}

// sigmoid32 returns 1/(1+e^-x).
func sigmoid32(x float32) float32 {
	v := -widen(x)
	if !(v < 104) {
		if x != x {
			return x
		}
		return 0
	}
	if v < -40 {
		return 1
	}
	s, p := expm1Parts(v)
	return float32(1 / (1 + (s + float64(s*p))))
}

// logMantissa returns the logarithm of (1+u)/(1-u) for |u| <= 0.172. It uses
// the series of 2 atanh(u); the omitted terms change the result by a relative
// error of less than 6e-11.
func logMantissa(u float64) float64 {
	u2 := u * u
	a := 1.0/7 + float64(u2*(1.0/9+float64(u2*(1.0/11))))
	return 2 * float64(u*(1+float64(u2*(1.0/3+float64(u2*(1.0/5+float64(u2*a)))))))
}

// logNormal returns the natural logarithm of v, a positive normal number.
func logNormal(v float64) float64 {
	bits := math.Float64bits(v)
	// Choose k so that the mantissa lies between sqrt(1/2) and sqrt(2).
	k := int64(bits-0x3fe6a09e667f3bcd) >> 52
	m := math.Float64frombits(bits - uint64(k)<<52)
	return float64(float64(k)*ln2) + logMantissa((m-1)/(m+1))
}

// log32 returns the natural logarithm of x.
func log32(x float32) float32 {
	v := widen(x)
	if !(v > 0 && v <= math.MaxFloat32) || tiny(x, subnormal) {
		return float32(math.Log(float64(x)))
	}
	return float32(logNormal(v))
}

// log1p32 returns the logarithm of 1+x.
func log1p32(x float32) float32 {
	v := widen(x)
	if !(v > -1 && v <= math.MaxFloat32) {
		return float32(math.Log1p(float64(x)))
	}
	if v > -0.25 && v < 0.4 {
		if tiny(x, belowRounding) {
			return x
		}
		return float32(logMantissa(v / (2 + v)))
	}
	return float32(logNormal(1 + v))
}

// softplus32 returns log(1+e^x).
func softplus32(x float32) float32 {
	v := widen(x)
	if !(v <= 30) {
		return x
	}
	if v < -104 {
		return 0
	}
	s, p := expm1Parts(v)
	e := s + float64(s*p)
	if e < 0.4 {
		return float32(logMantissa(e / (2 + e)))
	}
	return float32(logNormal(1 + e))
}
