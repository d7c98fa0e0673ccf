package partition

import (
	"math"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/random"
)

func samplesOf(t func(p float64) float64, ps ...int) (samples []Sample) {
	for _, p := range ps {
		samples = append(samples, Sample{P: p, Steps: 1, Median: time.Duration(math.Round(1e9 * t(float64(p))))})
	}
	return samples
}

func TestFitRecoversExactCurve(t *testing.T) {
	for _, c := range []struct{ c, b, a float64 }{{1, 2, 0.1}, {0, 5, 0.2}, {0.01, 3, 0.003}, {1000, 10, 10}, {1e-3, 1e-4, 1e-5}} {
		f, why := fit(samplesOf(func(p float64) float64 { return c.c + c.b/p + c.a*p }, 1, 2, 4, 8, 16, 32))
		if f == nil {
			t.Errorf("%+v: no fit: %s", c, why)
			continue
		}
		scale := 1e-6 * (c.c + c.b + c.a)
		if math.Abs(f.C-c.c) > scale || math.Abs(f.B-c.b) > scale || math.Abs(f.A-c.a) > scale || math.Abs(f.Best()/math.Sqrt(c.b/c.a)-1) > 1e-3 {
			t.Errorf("%+v: %+v", c, f)
		}
		for i, r := range f.Residuals {
			if math.Abs(r) > scale {
				t.Errorf("%+v: residual %d is %v", c, i, r)
			}
		}
	}
}

func TestFitReportsWhyThereIsNone(t *testing.T) {
	for name, c := range map[string]struct {
		samples []Sample
		why     string
	}{
		"none":         {nil, "fewer than three samples"},
		"two":          {samplesOf(func(p float64) float64 { return p }, 1, 2), "fewer than three samples"},
		"equal":        {samplesOf(func(float64) float64 { return 2 }, 1, 2, 4), "all times are equal within their spread"},
		"falling":      {samplesOf(func(p float64) float64 { return 1 + 1/p }, 1, 2, 4, 8), "the curve through the samples has no minimum"},
		"rising":       {samplesOf(func(p float64) float64 { return 1 + p }, 1, 2, 4, 8), "the curve through the samples has no minimum"},
		"a hill":       {samplesOf(func(p float64) float64 { return 100 - 9/p - p }, 1, 2, 4, 8, 16), "the curve through the samples has no minimum"},
		"huge":         {samplesOf(func(p float64) float64 { return 9e9 - p }, 1, 2, 1<<62, math.MaxInt), "the curve through the samples has no minimum"},
		"a nanosecond": {samplesOf(func(float64) float64 { return 1e-9 }, 1, 2, 3), "all times are equal within their spread"},
	} {
		if f, why := fit(c.samples); f != nil || why != c.why {
			t.Errorf("%s: %+v, %q", name, f, why)
		}
	}
}

// gridSearch is a slow and simple alternative to leastSquares: it searches a
// grid of non-negative x for the smallest error, and refines the grid around
// the best point.
func gridSearch(l *leastSquares, high [3]float64) (best [3]float64) {
	const points = 8
	low := [3]float64{}
	for range 60 {
		least := math.Inf(1)
		for i := range points * points * points {
			var x [3]float64
			for j, k := range [3]int{i % points, i / points % points, i / points / points} {
				x[j] = low[j] + (high[j]-low[j])*float64(k)/(points-1)
			}
			if e := l.error(x); e < least {
				best, least = x, e
			}
		}
		for j := range best {
			reach := 0.4 * (high[j] - low[j])
			low[j], high[j] = max(0, best[j]-reach), best[j]+reach
		}
	}
	return best
}

// No point of the grid has a smaller error than nonNegative's result. The
// samples are noisy enough that every set of positive elements occurs.
func TestFitAgainstGridSearch(t *testing.T) {
	occurred := map[[3]bool]int{}
	for i := range uint64(60) {
		s := random.New(8, "fit").Derive(i)
		var l leastSquares
		largest := 0.0
		for k := range 5 {
			p := float64(int(1) << k)
			u, v := s.Pair(uint64(k))
			w := 0.5 + v
			l.add([3]float64{w, w / p, w * p}, w*u)
			largest = max(largest, u)
		}
		got := l.nonNegative()
		for j, x := range got {
			if x < 0 {
				t.Fatalf("unknown %d is %v", j, x)
			}
		}
		occurred[[3]bool{got[0] > 0, got[1] > 0, got[2] > 0}]++
		twin := gridSearch(&l, [3]float64{2 * largest, 40 * largest, 2 * largest})
		if l.error(got) > l.error(twin)*(1+1e-9)+1e-15 {
			t.Errorf("trial %d: %v has an error of %v, the grid's %v of %v", i, got, l.error(got), twin, l.error(twin))
		}
		if l.error(twin) > l.error(got)*1.01+1e-6 {
			t.Errorf("trial %d: the grid stopped at %v with %v, the fit has %v", i, twin, l.error(twin), l.error(got))
		}
	}
	if len(occurred) < 5 {
		t.Errorf("few sets of unknowns: %v", occurred)
	}
}

func FuzzFit(f *testing.F) {
	f.Add(int64(5), int64(4), int64(6), int64(7), 1, 2, 4, int64(0))
	f.Add(int64(math.MaxInt64), int64(1), int64(math.MaxInt64), int64(1), 1, math.MaxInt, 2, int64(math.MaxInt64))
	f.Add(int64(1), int64(1), int64(1), int64(2), 3, 3, 3, int64(1))
	f.Fuzz(func(t *testing.T, t1, t2, t3, t4 int64, p1, p2, p3 int, noise int64) {
		s := NewSearch(p1, p2, p3)
		times := []time.Duration{time.Duration(t1), time.Duration(t2), time.Duration(t3), time.Duration(t4)}
		asked := 0
		for p, more := s.Next(); more; p, more = s.Next() {
			if asked++; asked > 140 {
				t.Fatalf("asks for %d more", p)
			}
			if p < max(p2, 1) || p > max(p2, p3, 1) {
				t.Fatalf("asks for %d of [%d, %d]", p, p2, p3)
			}
			one := times[asked%4]
			s.Add(p, []time.Duration{one, one + time.Duration(noise), one})
		}
		r := s.Result()
		if again := s.Result(); again.P != r.P || again.Why != r.Why {
			t.Fatal("another result the second time")
		}
		if r.Fit != nil && !(r.Fit.A > 0 && r.Fit.B > 0 && r.Fit.C >= 0 && r.Fit.Best() > 0 && !math.IsInf(r.Fit.At(1), 0)) {
			t.Fatalf("fit %+v", r.Fit)
		}
		checkLines(t, r)
	})
}
