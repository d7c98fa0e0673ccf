package random

import (
	"math"
	"testing"
)

// Zipf returns 0 and n-1 at the ends of its range, in spite of rounding
// errors.
func TestZipfStaysInRange(t *testing.T) {
	for _, n := range []int{1, 2, 3, 1000, 1 << 40} {
		if low, high := Zipf(0, n), Zipf(math.Nextafter(1, 0), n); low != 0 || high < n*9/10 || high >= n {
			t.Errorf("of %d: %d to %d", n, low, high)
		}
	}
}

// The probabilities of ZipfChance add up to 1, and Zipf returns each number
// with its probability.
func TestZipfChance(t *testing.T) {
	const n, draws = 50, 100000
	counts, s, sum := make([]float64, n), New(1, "zipf"), 0.0
	for i := range draws {
		u, _ := s.Pair(uint64(i))
		counts[Zipf(u, n)]++
	}
	for k, count := range counts {
		p := ZipfChance(k, n)
		sum += p
		if math.Abs(count-draws*p) > 6*math.Sqrt(draws*p) {
			t.Errorf("%d came %v times, want about %.0f", k, count, draws*p)
		}
	}
	if math.Abs(sum-1) > 1e-12 {
		t.Errorf("the chances add up to %v", sum)
	}
}
