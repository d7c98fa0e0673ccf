package cpu

import "math"

// apply returns a loop that calls f for every element. The Go compiler does
// not inline this call. Functions that would be much faster inlined have their
// own loops below.
func apply[T float](f func(T) T) func(out, a []T) {
	return func(out, a []T) {
		a = a[:len(out)]
		for i := range out {
			out[i] = f(a[i])
		}
	}
}

// unaryLoop returns the loop that computes one of Gorgonia's unary operations,
// named by code, for every element.
func unaryLoop[T float](code string) func(out, a []T) {
	arithmetic := map[string]func(out, a []T){
		"abs": absLoop[T], "sign": signLoop[T], "neg": negLoop[T], "square": squareLoop[T], "cube": cubeLoop[T], "sqrt": sqrtLoop[T],
		"inv": func(out, a []T) { divSV(out, 1, a) },
		"invSqrt": func(out, a []T) {
			sqrtLoop(out, a)
			divSV(out, 1, out)
		},
	}
	if f := arithmetic[code]; f != nil {
		return f
	}
	if f, ok := any(apply(function32(code))).(func(out, a []T)); ok {
		return f
	}
	return any(apply(functions64[code])).(func(out, a []T))
}

func absLoop[T float](out, a []T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = T(math.Abs(float64(a[i])))
	}
}

// signLoop computes the sign: 1, -1, 0 for 0, and NaN for NaN.
func signLoop[T float](out, a []T) {
	a = a[:len(out)]
	for i := range out {
		x := a[i]
		if x > 0 {
			x = 1
		} else if x < 0 {
			x = -1
		}
		out[i] = x
	}
}

func negLoop[T float](out, a []T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = -a[i]
	}
}

func squareLoop[T float](out, a []T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = a[i] * a[i]
	}
}

func cubeLoop[T float](out, a []T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = a[i] * a[i] * a[i]
	}
}

// sqrtLoop computes the square root in double precision. The float32 result is
// still the correctly rounded one: rounding a square root twice gives the same
// as rounding it once.
func sqrtLoop[T float](out, a []T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = T(math.Sqrt(float64(a[i])))
	}
}

// functions64 maps the codes of Gorgonia's functions to implementations in
// double precision.
var functions64 = map[string]func(float64) float64{
	"ceil": math.Ceil, "floor": math.Floor, "sin": math.Sin, "cos": math.Cos, "exp": math.Exp, "ln": math.Log,
	"log2": math.Log2, "tanh": math.Tanh, "log1p": math.Log1p, "expm1": math.Expm1,
	"sigmoid": sigmoid64, "softplus": softplus64,
}

func sigmoid64(x float64) float64 {
	if x < -709 {
		return 0
	}
	return 1 / (1 + math.Exp(-x))
}

func softplus64(x float64) float64 {
	if x > 40 {
		return x
	}
	return math.Log1p(math.Exp(x))
}

// functions32 maps codes to float32 implementations that are faster than those
// of functions64.
var functions32 = map[string]func(float32) float32{
	"exp": exp32, "tanh": tanh32, "ln": log32, "sigmoid": sigmoid32, "expm1": expm132, "log1p": log1p32, "softplus": softplus32,
}

// function32 returns the function named by code for float32. If functions32
// has none, it converts to float64 and back.
func function32(code string) func(float32) float32 {
	if f := functions32[code]; f != nil {
		return f
	}
	f := functions64[code]
	return func(x float32) float32 { return float32(f(float64(x))) }
}

// tanhGradient computes (1 - y*y) g, the gradient of tanh from its result y
// and the gradient g of y. It rounds in the same places as the three Gorgonia
// operations that it replaces.
func tanhGradient[T float](out, y, g []T) {
	y, g = y[:len(out)], g[:len(out)]
	for i := range out {
		out[i] = (1 - T(y[i]*y[i])) * g[i]
	}
}
