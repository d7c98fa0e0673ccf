package kernels_test

import (
	"math"
	"math/big"
	"strings"
	"testing"
)

const precision = 1300 // number of bits of the exact reference; enough for exp(x)-1 of the smallest x that the tests use

func exactly(x float64) *big.Float { return new(big.Float).SetPrec(precision).SetFloat64(x) }

func add(x, y *big.Float) *big.Float { return exactly(0).Add(x, y) }
func sub(x, y *big.Float) *big.Float { return exactly(0).Sub(x, y) }
func mul(x, y *big.Float) *big.Float { return exactly(0).Mul(x, y) }
func quo(x, y *big.Float) *big.Float { return exactly(0).Quo(x, y) }

// exactExp returns e^x in high precision. It halves x until Taylor's series
// needs few terms, and squares the result as often.
func exactExp(x *big.Float) *big.Float {
	const halvings = 40
	small, sum, term := exactly(0).SetMantExp(x, -halvings), exactly(1), exactly(1)
	for i := 1.0; i < 12; i++ {
		term = quo(mul(term, small), exactly(i))
		sum = add(sum, term)
	}
	for range halvings {
		sum = mul(sum, sum)
	}
	return sum
}

// exactLog returns the logarithm of x in high precision. It corrects guess,
// which has a small error, by the series of the logarithm.
func exactLog(x *big.Float, guess float64) *big.Float {
	d := sub(mul(x, exactExp(exactly(-guess))), exactly(1))
	sum, power := exactly(guess), exactly(-1)
	for i := 1.0; i < 12; i++ {
		power = mul(power, mul(d, exactly(-1)))
		sum = add(sum, quo(power, exactly(i)))
	}
	return sum
}

// exact returns a function of x with about 200 correct bits. It returns nil if
// the result is no normal number; the kernels then return what the CPU
// returns.
func exact(code string, x float64) *big.Float {
	one, at := exactly(1), exactly(x)
	switch strings.TrimPrefix(code, "nn.") {
	case "exp":
		return exactExp(at)
	case "expm1":
		return sub(exactExp(at), one)
	case "ln":
		_, e := math.Frexp(x)
		return exactLog(at, math.Log(math.Ldexp(x, -e))+float64(e)*math.Ln2)
	case "log1p":
		return exactLog(add(one, at), math.Log1p(x))
	case "log2":
		return quo(exact("ln", x), exactLog(exactly(2), math.Ln2))
	case "tanh":
		e := exactExp(add(at, at))
		return quo(sub(e, one), add(e, one))
	case "sigmoid":
		return quo(one, add(one, exactExp(exactly(-x))))
	case "softplus":
		return exactLog(add(one, exactExp(at)), math.Max(x, 0)+math.Log1p(math.Exp(-math.Abs(x))))
	}
	return nil
}

// offExact returns the error of result got in units in the last place. It
// returns 0 if the function has no finite, normal result, which
// TestFloat64FunctionsAtTheirLimits checks.
func offExact(code string, x, got float64) float64 {
	logarithm := code == "ln" || code == "log2"
	if math.IsNaN(x) || math.IsInf(x, 0) || math.Abs(x) > 708 && !logarithm && code != "log1p" || x <= 0 && logarithm || code == "log1p" && x <= -1 || x == 0 {
		return 0
	}
	want := exact(code, x)
	if near, _ := want.Float64(); math.Abs(near) < 0x1p-1022 {
		return 0
	}
	return offBy(want, got)
}

// offBy returns the distance of got from want in units in the last place.
func offBy(want *big.Float, got float64) float64 {
	if math.IsNaN(got) || math.IsInf(got, 0) {
		return math.Inf(1)
	}
	near, _ := want.Float64()
	unit := math.Nextafter(math.Abs(near), math.Inf(1)) - math.Abs(near)
	off, _ := quo(sub(exactly(got), want), exactly(unit)).Float64()
	return math.Abs(off)
}

// exactPower returns x^y in high precision. It returns nil if the result is no
// normal number or a special case that package math defines.
func exactPower(x, y float64) *big.Float {
	rough := math.Pow(x, y)
	if x == 0 || math.IsInf(x, 0) || math.IsInf(y, 0) || math.IsNaN(x+y+rough) || math.IsInf(rough, 0) || math.Abs(rough) < 0x1p-1022 {
		return nil
	}
	p := exactExp(mul(exactly(y), exact("ln", math.Abs(x))))
	if rough < 0 {
		return p.Neg(p)
	}
	return p
}

func TestExactReferenceAgreesWithPackageMath(t *testing.T) {
	for code, f := range map[string]func(float64) float64{"exp": math.Exp, "expm1": math.Expm1, "log1p": math.Log1p, "tanh": math.Tanh} {
		for _, x := range []float64{1e-8, 0.001, 0.3, 1, 2.5, 17, 300} {
			if off := offExact(code, x, f(x)); off > 1.5 {
				t.Errorf("%s(%v) of package math is %v units off", code, x, off)
			}
		}
	}
}
