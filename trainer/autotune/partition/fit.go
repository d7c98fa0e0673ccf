package partition

import (
	"math"
	"slices"
	"time"
)

// Fit is the curve t(P) = C + B/P + A*P through measured step times in
// seconds, where P is the number of pieces. C is the time that does not depend
// on P, B the work that the pieces share, and A the cost of each piece. A and
// B are positive, so the curve has a minimum.
type Fit struct {
	A, B, C   float64
	Residuals []float64 // measured minus fitted seconds; one element for each measured sample, in ascending order of P
}

// At returns the fitted time of a step with p pieces, in seconds.
func (f *Fit) At(p float64) float64 { return f.C + f.B/p + float64(f.A*p) }

// Best returns the number P of pieces at which the curve has its minimum.
func (f *Fit) Best() float64 { return math.Sqrt(f.B / f.A) }

// fit returns the curve through the samples, weighted by their accuracy. If
// there is no such curve, it returns nil and the reason.
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

// leastSquares is the problem to find the x that minimizes the error |rows*x -
// values|.
type leastSquares struct {
	rows   [][3]float64
	values []float64
}

func (l *leastSquares) add(row [3]float64, value float64) {
	l.rows, l.values = append(l.rows, row), append(l.values, value)
}

// nonNegative returns the x without negative elements that minimizes the
// error. It solves the unconstrained problem for each of the seven sets of
// elements that may be positive. One of these solutions is the constrained
// minimum (Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter
// 23). Larger sets are tried later and must be better by more than rounding
// errors.
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

// solve returns the x that minimizes the error if only the elements in set may
// differ from 0. ok is false if an element of x is negative. solve uses
// modified Gram-Schmidt, which tolerates badly scaled columns such as 1/P and
// P.
func (l *leastSquares) solve(set []int) (x [3]float64, ok bool) {
	columns := make([][]float64, len(set)+1) // one column for each element of set, and one for the values
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

// Sample is the measured time of steps with P pieces.
type Sample struct {
	P       int           // number of pieces
	Steps   int           // number of steps that were measured
	Median  time.Duration // median time of a step
	Spread  time.Duration // the true median is within Median ± Spread in about 95 of 100 cases
	Skipped string        // why P was not measured, in which case Steps, Median and Spread are 0; "" if P was measured
}

// newSample computes a Sample from the durations of steps, at least one.
// Spread is twice the standard error of the median of a normal distribution, 2
// * 1.2533 * deviation / sqrt(n). The standard deviation is estimated as
// 1.4826 times the median distance from the median, so that a few very slow
// steps do not change it.
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

// maxTie is the largest relative difference at which two times can still tie.
// Even if the measurements are noisier than this, the faster time is still the
// better guess.
const maxTie = 0.05

// tie reports whether the medians of a and b differ by no more than their
// combined spread, and by at most 5 %.
func tie(a, b Sample) bool {
	difference := math.Abs(float64(a.Median) - float64(b.Median))
	off := math.Hypot(float64(a.Spread), float64(b.Spread))
	return difference <= min(off, maxTie*float64(min(a.Median, b.Median)))
}
