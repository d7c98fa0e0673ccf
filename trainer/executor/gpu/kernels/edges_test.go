package kernels_test

import (
	"math"
	"testing"

	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// The float64 functions match the CPU for arguments whose result is 0,
// subnormal, infinite or NaN.
func TestFloat64FunctionsAtTheirLimits(t *testing.T) {
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
		{"softplus", inf, inf}, {"softplus", -inf, 0}, {"softplus", nan, nan}, {"softplus", 50, 50},
	} {
		got := compute(t, 1, []float64{c.x})(Unary(Float64, c.code, 1))
		same(t, c.code, Bound{}, got, []float64{c.y})
	}
}
