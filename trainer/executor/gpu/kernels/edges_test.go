package kernels_test

import (
	"math"
	"testing"

	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// Functions of double precision where they have no normal result.
func TestEdges(t *testing.T) {
	inf, nan, zero := math.Inf(1), math.NaN(), math.Copysign(0, -1)
	for _, c := range []struct {
		code string
		x, y float64
	}{
		{"exp", inf, inf}, {"exp", -inf, 0}, {"exp", nan, nan}, {"exp", 709.79, inf}, {"exp", -745.2, 0}, {"exp", 0, 1},
		{"exp", -745, 5e-324}, {"expm1", inf, inf}, {"expm1", -inf, -1}, {"expm1", -50, -1}, {"expm1", nan, nan}, {"expm1", zero, zero},
		{"expm1", 710, inf}, {"ln", 0, -inf}, {"ln", zero, -inf}, {"ln", -1, nan}, {"ln", inf, inf}, {"ln", nan, nan}, {"ln", 1, 0},
		{"log2", 0, -inf}, {"log2", -1, nan}, {"log2", 8, 3}, {"log2", 5e-324, -1074}, {"log2", inf, inf},
		{"log1p", -1, -inf}, {"log1p", -2, nan}, {"log1p", inf, inf}, {"log1p", zero, zero}, {"log1p", nan, nan}, {"log1p", -inf, nan},
		{"tanh", inf, 1}, {"tanh", -inf, -1}, {"tanh", nan, nan}, {"tanh", zero, zero}, {"tanh", 30, 1}, {"tanh", -30, -1},
		{"sigmoid", inf, 1}, {"sigmoid", -inf, 0}, {"sigmoid", nan, nan}, {"sigmoid", 0, 0.5}, {"nn.sigmoid", -inf, 0},
		{"sin", inf, nan}, {"sin", nan, nan}, {"sin", zero, zero}, {"sin", 0, 0}, {"sin", 5e-324, 5e-324}, {"sin", -1e-310, -1e-310},
		{"cos", -inf, nan}, {"cos", nan, nan}, {"cos", 0, 1}, {"cos", 1e-300, 1},
		{"softplus", inf, inf}, {"softplus", -inf, 0}, {"softplus", nan, nan}, {"softplus", 50, 50},
	} {
		got := compute(t, 1, []float64{c.x})(Unary(Float64, c.code, 1))
		same(t, c.code, Bound{}, got, []float64{c.y})
	}
}

// Sines and cosines of numbers far from zero, and of those that are closest to a
// multiple of a quarter turn: 6381956970095103 * 2^797 is 2^-61 away from one.
func TestLargeAngles(t *testing.T) {
	x := []float64{math.Pi, math.Pi / 2, 3 * math.Pi / 4, math.Pi / 4, 1e5, 1 << 30, 1e22, 1e100, 1e300, math.MaxFloat64, math.Ldexp(6381956970095103, 797)}
	for _, v := range noise[float64](21, 300) {
		x = append(x, v*100, math.Ldexp(v, int(math.Abs(v)*400)))
	}
	for i := range x {
		if i%2 == 1 {
			x[i] = -x[i]
		}
	}
	for _, code := range []string{"sin", "cos"} {
		for i, got := range compute(t, len(x), x)(Unary(Float64, code, len(x))) {
			if off := offExact(code, x[i], got); off > BoundOf(code, Float64).ULPs {
				t.Errorf("%s(%v) = %v is %.2f units in the last place off", code, x[i], got, off)
			}
		}
	}
}
