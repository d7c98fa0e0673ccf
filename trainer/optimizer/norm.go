package optimizer

import "github.com/plx-run/plx/trainer/wire"

// SumOfSquares adds the squares of g in float64. Element i belongs to the
// partial sum i mod 4, and the result is (s0 + s1) + (s2 + s3). The order is
// part of the promise of equal bits. So a variable's norm is a sum over blocks
// whose bounds do not depend on the shards.
func SumOfSquares[T wire.Float](g []T) float64 {
	var s0, s1, s2, s3 float64
	for ; len(g) >= 4; g = g[4:] {
		s0 += square(g[0])
		s1 += square(g[1])
		s2 += square(g[2])
		s3 += square(g[3])
	}
	switch len(g) {
	case 3:
		s2 += square(g[2])
		fallthrough
	case 2:
		s1 += square(g[1])
		fallthrough
	case 1:
		s0 += square(g[0])
	}
	return (s0 + s1) + (s2 + s3)
}

// square rounds before the addition. The square of a float32 is exact.
func square[T wire.Float](x T) float64 { return float64(float64(x) * float64(x)) }
