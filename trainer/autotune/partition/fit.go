package partition

import (
	"math"
	"slices"
	"time"
)

// Fit is the curve t(P) = C + B/P + A*P through samples, in seconds: what
// does not depend on P, what pieces share, and what each piece costs. A and B
// are positive, so it has a minimum.
type Fit struct {
	A, B, C   float64
	Residuals []float64 // measured minus fitted seconds, of those samples that were measured
}

// At returns the fitted time of P pieces, in seconds.
func (f *Fit) At(p float64) float64 { return f.C + f.B/p + float64(f.A*p) }

// Best is where the curve is lowest.
func (f *Fit) Best() float64 { return math.Sqrt(f.B / f.A) }

// fit returns the curve through measured samples, weighted by how sure they
// are, or why there is none.
func fit(samples []Sample) (*Fit, string) {
	if len(samples) < 3 {
		return nil, "fewer than three samples"
	}
	if equal(samples) {
		return nil, "all times are equal within their spread"
	}
	var l leastSquares
	for _, s := range samples {
		t := s.Median.Seconds()
		w := 1 / math.Hypot(s.Spread.Seconds(), t/100)
		p := float64(s.P)
		l.add([3]float64{w, w / p, w * p}, w*t)
	}
	x := l.nonNegative()
	if x[1] == 0 || x[2] == 0 {
		return nil, "the curve through the samples has no minimum"
	}
	f := &Fit{C: x[0], B: x[1], A: x[2]}
	for _, s := range samples {
		f.Residuals = append(f.Residuals, s.Median.Seconds()-f.At(float64(s.P)))
	}
	return f, ""
}

func equal(samples []Sample) bool {
	for _, a := range samples {
		for _, b := range samples {
			if !tie(a, b) {
				return false
			}
		}
	}
	return true
}

// leastSquares finds x with the smallest |rows*x - values|.
type leastSquares struct {
	rows   [][3]float64
	values []float64
}

func (l *leastSquares) add(row [3]float64, value float64) {
	l.rows, l.values = append(l.rows, row), append(l.values, value)
}

// nonNegative tries all sets of unknowns that are not 0: the constrained
// minimum is the free one of some set (Lawson and Hanson, "Solving Least
// Squares Problems", 1974, chapter 23), and with three there are seven. Sets
// come in order of size, and a larger one must be really better.
func (l *leastSquares) nonNegative() (best [3]float64) {
	least := l.error(best)
	enough := least * 1e-20
	for _, set := range [][]int{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}} {
		x, ok := l.solve(set)
		if e := l.error(x); ok && e < least-enough {
			best, least = x, e
		}
	}
	return best
}

func (l *leastSquares) error(x [3]float64) (sum float64) {
	for i, row := range l.rows {
		d := l.values[i]
		for j := range row {
			d -= row[j] * x[j]
		}
		sum += d * d
	}
	return sum
}

// solve is the minimum over the unknowns of set, ok where none is negative.
// It makes the columns orthogonal one by one (modified Gram-Schmidt, which
// stands badly scaled columns, as 1/P and P are).
func (l *leastSquares) solve(set []int) (x [3]float64, ok bool) {
	columns := make([][]float64, len(set)+1) // and the values
	for k := range columns {
		for i, row := range l.rows {
			if k == len(set) {
				columns[k] = append(columns[k], l.values[i])
			} else {
				columns[k] = append(columns[k], row[set[k]])
			}
		}
	}
	var r [4][4]float64
	for k := range set {
		square := dot(columns[k], columns[k])
		if !(square > 0) || math.IsInf(square, 0) {
			return x, false
		}
		for j := k + 1; j < len(columns); j++ {
			r[k][j] = dot(columns[k], columns[j]) / square
			for i := range columns[j] {
				columns[j][i] -= r[k][j] * columns[k][i]
			}
		}
	}
	for k := len(set) - 1; k >= 0; k-- {
		v := r[k][len(set)]
		for j := k + 1; j < len(set); j++ {
			v -= r[k][j] * x[set[j]]
		}
		if !(v >= 0) || math.IsInf(v, 0) {
			return x, false
		}
		x[set[k]] = v
	}
	return x, true
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// Sample is what was measured at P pieces.
type Sample struct {
	P       int           // number of pieces
	Steps   int           // number of steps that were measured
	Median  time.Duration // median time of a step
	Spread  time.Duration // in about 95 of 100 cases the true median is no further than this from Median
	Skipped string        // why nothing was measured, so that the other fields but P are 0; empty if they are set
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
