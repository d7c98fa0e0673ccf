package exponential

import (
	"math"
	"slices"
	"testing"
)

// close32 reports whether got is want up to float32's rounding.
func close32(got float32, want float64) bool {
	d := math.Abs(float64(got) - float64(float32(want)))
	return d <= 2e-7*math.Abs(want) || d < 1e-30 || got == float32(want)
}

// The fast functions must agree with package math to float32 precision,
// extreme values included.
func TestQuickFunctions(t *testing.T) {
	var xs []float32
	for x := -130.0; x < 105; x += 0.0137 {
		xs = append(xs, float32(x), float32(x/1000))
	}
	const most = 105
	e, want := slices.Clone(xs), 0.0
	sum := Shifted(e, most)
	for i, x := range xs {
		exact := math.Exp(float64(x - most))
		if want += exact; !close32(e[i], exact) {
			t.Fatalf("exp of %v is %v, want %v", x-most, e[i], exact)
		}
	}
	if math.Abs(sum-want) > 1e-9*want {
		t.Errorf("the sum is %v, want %v", sum, want)
	}
	xs = append(xs, 0, 1e-40, 1e30, float32(math.Inf(1)), float32(math.Inf(-1)))
	s, h := slices.Clone(xs), slices.Clone(xs)
	Sigmoids(s)
	Tanhs(h, xs)
	for i, x := range xs {
		if want := 1 / (1 + math.Exp(-float64(x))); !close32(s[i], want) {
			t.Fatalf("sigmoid of %v is %v, want %v", x, s[i], want)
		}
		if want := math.Tanh(float64(x)); !close32(h[i], want) {
			t.Fatalf("tanh of %v is %v, want %v", x, h[i], want)
		}
	}
}

func TestQuickFunctionsKeepNaN(t *testing.T) {
	for what, f := range map[string]func(x []float32){
		"exp": func(x []float32) { Shifted(x, 0) }, "sigmoid": Sigmoids[float32], "tanh": func(x []float32) { Tanhs(x, x) },
	} {
		x := []float32{float32(math.NaN())}
		if f(x); x[0] == x[0] {
			t.Errorf("the %s of NaN is %v", what, x[0])
		}
	}
}
