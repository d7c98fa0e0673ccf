package partition

import (
	"math"
	"slices"
	"time"
)

// Sample is what was measured at P pieces.
type Sample struct {
	P       int
	Steps   int
	Median  time.Duration
	Spread  time.Duration // the true median is this near in about 95 of 100 cases
	Skipped string        // why nothing was measured; then all but P is 0
}

// newSample reads steps, at least one. The spread is twice the standard error
// of a median of normal numbers, 2 * 1.2533 * deviation / sqrt(n), the
// deviation taken as 1.4826 times the median distance from the median: a few
// steps that took very long, as happens, do not change it.
func newSample(p int, steps []time.Duration) Sample {
	s := Sample{P: p, Steps: len(steps), Median: median(steps)}
	distances := make([]time.Duration, len(steps))
	for i, t := range steps {
		distances[i] = max(t-s.Median, s.Median-t)
	}
	s.Spread = time.Duration(2 * 1.2533 * 1.4826 * float64(median(distances)) / math.Sqrt(float64(len(steps))))
	return s
}

func median(times []time.Duration) time.Duration {
	times = slices.Sorted(slices.Values(times))
	a, b := times[(len(times)-1)/2], times[len(times)/2]
	return a + (b-a)/2
}

// alike is the part by which times may differ at most and still be a tie. With
// noisier times the one that seems the fastest is the better guess.
const alike = 0.05

// tie reports whether a and b differ by less than they may be off.
func tie(a, b Sample) bool {
	difference := math.Abs(float64(a.Median) - float64(b.Median))
	off := math.Hypot(float64(a.Spread), float64(b.Spread))
	return difference <= min(off, alike*float64(min(a.Median, b.Median)))
}
