package torchtwin

import (
	"math"
	"testing"
)

// A comparison with a tensor of zeros must be an error.
func TestDifference(t *testing.T) {
	for _, c := range []struct {
		x, want []float64
		by      float64 // -1 means an error
		each    float64 // of the elements alone
	}{
		{[]float64{1, -4}, []float64{1, -4}, 0, 0},
		{[]float64{1, -3}, []float64{2, -4}, 0.25, 0.5},
		{[]float64{0, 5}, []float64{0, 4}, 0.25, -1},
		{[]float64{0, 0}, []float64{0, 0}, -1, -1},
		{[]float64{1, math.NaN()}, []float64{1, 2}, -1, -1},
		{[]float64{1, math.Inf(1)}, []float64{1, math.Inf(1)}, -1, -1},
		{[]float64{1, math.Inf(1)}, []float64{1, 2}, -1, -1},
		{[]float64{1}, []float64{1, 2}, -1, -1},
		{[]float64{1, 2}, []float64{1}, -1, -1},
		{nil, nil, -1, 0},
	} {
		for name, f := range map[string]func(x, want []float64) (float64, error){"difference": difference, "largestOfEach": largestOfEach} {
			by := c.by
			if name == "largestOfEach" {
				by = c.each
			}
			if got, err := f(c.x, c.want); (err != nil) != (by < 0) || err == nil && got != by {
				t.Errorf("%s of %v and %v: %v, %v, want %v", name, c.x, c.want, got, err, by)
			}
		}
	}
}
