package partition

import "math"

// Fit is the curve t(P) = C + B/P + A*P through samples, in seconds: what
// does not depend on P, what pieces share, and what each piece costs. A and B
// are positive, so it has a minimum.
type Fit struct {
	A, B, C   float64
	Residuals []float64 // measured less fitted, by those samples that were measured
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
