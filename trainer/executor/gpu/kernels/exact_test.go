package kernels_test

import (
	"math"
	"math/big"
	"strings"
	"testing"
)

const precision = 1300 // bits, enough for exp(x)-1 of the smallest x that is tested

func exactly(x float64) *big.Float { return new(big.Float).SetPrec(precision).SetFloat64(x) }

func add(x, y *big.Float) *big.Float { return exactly(0).Add(x, y) }
func sub(x, y *big.Float) *big.Float { return exactly(0).Sub(x, y) }
func mul(x, y *big.Float) *big.Float { return exactly(0).Mul(x, y) }
func quo(x, y *big.Float) *big.Float { return exactly(0).Quo(x, y) }

// exactExp halves x until Taylor's series is short.
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

// exactLog corrects a first guess, whose error is small, by the series of the
// logarithm.
func exactLog(x *big.Float, guess float64) *big.Float {
	d := sub(mul(x, exactExp(exactly(-guess))), exactly(1))
	sum, power := exactly(guess), exactly(-1)
	for i := 1.0; i < 12; i++ {
		power = mul(power, mul(d, exactly(-1)))
		sum = add(sum, quo(power, exactly(i)))
	}
	return sum
}

// exact is a function of x in about 200 bits, or nil if its result is no normal
// number, where the kernels follow the CPU.
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

// offExact is the error of a result in units in the last place. It is 0 where
// the function has no finite, normal result; TestFloat64FunctionsAtTheirLimits has these.
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

// offBy is the error of a result in units in the last place.
func offBy(want *big.Float, got float64) float64 {
	if math.IsNaN(got) || math.IsInf(got, 0) {
		return math.Inf(1)
	}
	near, _ := want.Float64()
	unit := math.Nextafter(math.Abs(near), math.Inf(1)) - math.Abs(near)
	off, _ := quo(sub(exactly(got), want), exactly(unit)).Float64()
	return math.Abs(off)
}

// exactPower is x^y, or nil if it is no normal number or package math says what it is.
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
