package partition

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// ask runs a search with exact step times t(p), and skips the numbers in
// skipped. It returns the numbers that the search has requested.
func ask(s *Search, t func(p int) time.Duration, skipped ...int) (asked []int) {
	for p, more := s.Next(); more; p, more = s.Next() {
		if again, _ := s.Next(); again != p {
			panic("another P before the answer")
		}
		asked = append(asked, p)
		if slices.Contains(skipped, p) {
			s.Skip(p, "no room")
		} else {
			s.Add(p, []time.Duration{t(p), t(p), t(p)})
		}
	}
	return asked
}

// curve returns the function c + b/P + a*P, in milliseconds.
func curve(c, b, a float64) func(p int) time.Duration {
	return func(p int) time.Duration { return time.Duration(1e6 * (c + b/float64(p) + a*float64(p))) }
}

func TestSearchSequence(t *testing.T) {
	valley, falls, rises, flat := curve(100, 400, 4), curve(10, 100, 0), curve(10, 0, 10), curve(5, 0, 0)
	noise := func(p int) time.Duration { return time.Duration(1e9 + p*7919%13*1e8) }
	for _, c := range []struct {
		name               string
		start, least, most int
		t                  func(int) time.Duration
		skipped, asked     []int
		p                  int
		why, noFit         string
	}{
		{"a valley at 10", 4, 1, 64, valley, nil, []int{4, 8, 16, 2, 10}, 10, "the fastest of 5", ""},
		{"from its other side", 32, 1, 64, valley, nil, []int{32, 64, 16, 8, 4, 10}, 10, "the fastest of 6", ""},
		{"a valley at a power of two", 4, 1, 64, curve(100, 640, 10), nil, []int{4, 8, 16, 2}, 8, "the fastest of 4", ""},
		{"falls up to the end", 4, 1, 50, falls, nil, []int{4, 8, 16, 32, 50, 2}, 50, "the fastest of 6", "the curve through the samples has no minimum"},
		{"rises", 4, 1, 64, rises, nil, []int{4, 8, 2, 1}, 1, "the fastest of 4", "the curve through the samples has no minimum"},
		{"rises above 3", 12, 3, 64, rises, nil, []int{12, 24, 6, 3}, 3, "the fastest of 4", "the curve through the samples has no minimum"},
		{"equal times", 4, 1, 64, flat, nil, []int{4, 8, 2, 1}, 1, "the smallest, as all times are equal within their spread", "all times are equal within their spread"},
		{"no sense in it", 4, 1, 64, noise, nil, nil, 0, "", ""},
		{"two samples", 1, 1, 2, falls, nil, []int{1, 2}, 2, "the fastest of 2", "fewer than three samples"},
		{"one sample", 7, 7, 7, falls, nil, []int{7}, 7, "the only one that was measured", "fewer than three samples"},
		{"most below least", 4, 9, 3, falls, nil, []int{9}, 9, "the only one that was measured", "fewer than three samples"},
		{"start below least", -5, -3, 2, falls, nil, []int{1, 2}, 2, "the fastest of 2", "fewer than three samples"},
		{"start above most", 99, 1, 4, rises, nil, []int{4, 2, 1}, 1, "the fastest of 3", "the curve through the samples has no minimum"},
		{"more do not fit", 4, 1, 64, falls, []int{16}, []int{4, 8, 16, 2}, 8, "the fastest of 3", "the curve through the samples has no minimum"},
		{"fewer do not fit", 4, 1, 64, rises, []int{1, 2}, []int{4, 8, 2}, 4, "the fastest of 2", "fewer than three samples"},
		{"the start does not fit", 4, 1, 64, valley, []int{1, 2, 4}, []int{4, 8, 16, 2}, 8, "the fastest of 2", "fewer than three samples"},
		{"the fit's does not fit", 4, 1, 64, valley, []int{10}, []int{4, 8, 16, 2, 10}, 8, "the fastest of 4", ""},
		{"nothing fits", 4, 2, 16, valley, []int{2, 4, 8, 16}, []int{4, 8, 16, 2}, 0, "none of them could be measured", "fewer than three samples"},
		{"huge", 1, 1, math.MaxInt, func(p int) time.Duration { return math.MaxInt64 - time.Duration(p) }, nil, nil, 1, "the smallest, as all times are equal within their spread", "fewer than three samples"},
	} {
		s := NewSearch(c.start, c.least, c.most)
		asked := ask(s, c.t, c.skipped...)
		r := s.Result()
		if c.asked != nil && !slices.Equal(asked, c.asked) {
			t.Errorf("%s: asks %v, want %v", c.name, asked, c.asked)
		}
		if c.why != "" && (r.P != c.p || r.Why != c.why || r.NoFit != c.noFit || (r.Fit == nil) != (c.noFit != "")) {
			t.Errorf("%s: %d, %s, fit %+v %q", c.name, r.P, r.Why, r.Fit, r.NoFit)
		}
		if p, more := s.Next(); more {
			t.Errorf("%s: asks for %d after its end", c.name, p)
		}
	}
}

// With the largest possible range, doubling ends without an integer overflow.
func TestDoublingDoesNotOverflow(t *testing.T) {
	const half = math.MaxInt / 2
	s := NewSearch(half, 1, math.MaxInt)
	falls := func(p int) time.Duration { return time.Duration(math.MaxInt64 - p/2) }
	if asked := ask(s, falls); !slices.Equal(asked, []int{half, 2 * half, math.MaxInt, half / 2}) {
		t.Errorf("asks %v", asked)
	}
}

// If times tie, the smaller P wins. Times that differ by more than 5 % do not
// tie.
func TestTieGoesToSmallerP(t *testing.T) {
	steps := func(ms ...float64) (times []time.Duration) {
		for _, x := range ms {
			times = append(times, time.Duration(x*1e6))
		}
		return times
	}
	for _, c := range []struct {
		two, four []time.Duration
		p         int
		why       string
	}{
		{steps(102, 100, 104), steps(101, 99, 103), 2, "the smallest, as all times are equal within their spread"},
		{steps(102, 102, 102), steps(101, 101, 101), 4, "the fastest of 2"},
		{steps(110, 90, 130), steps(100, 80, 120), 4, "the fastest of 2"}, // a difference of 10 % is no tie, even if the times are noisy
		{steps(104, 90, 130), steps(100, 80, 120), 2, "the smallest, as all times are equal within their spread"},
		{steps(100, 100, 900), steps(101, 101, 101), 2, "the fastest of 2"}, // one slow step
	} {
		s := NewSearch(2, 2, 4)
		s.Add(2, c.two)
		s.Add(4, c.four)
		if r := s.Result(); r.P != c.p || r.Why != c.why {
			t.Errorf("%v, %v: %d, %s", c.two, c.four, r.P, r.Why)
		}
	}
	s := NewSearch(1, 1, 64)
	for p, times := range map[int][]time.Duration{4: steps(103, 105), 8: steps(100, 102), 1: steps(900, 920)} {
		s.Add(p, times)
	}
	if r := s.Result(); r.P != 4 || r.Why != "the smallest that is as fast as 8 within the spread" {
		t.Errorf("%d, %s", r.P, r.Why)
	}
}

// Add and Skip also accept numbers that the search has not requested. Add
// ignores durations of 0.
func TestAddAndSkip(t *testing.T) {
	s := NewSearch(4, 1, 8)
	s.Add(8, []time.Duration{5})
	s.Skip(8, "too late")
	if p, _ := s.Next(); p != 4 {
		t.Fatalf("asks for %d first", p)
	}
	s.Add(4, []time.Duration{0, -3})
	if p, _ := s.Next(); p != 2 {
		t.Fatalf("asks for %d, 8 is known", p)
	}
	s.Add(4, []time.Duration{9, 7})
	s.Add(4, []time.Duration{8})
	s.Skip(2, "no room")
	want := []Sample{{P: 2, Skipped: "no room"}, {P: 4, Steps: 3, Median: 8, Spread: newSample(4, []time.Duration{7, 8, 9}).Spread}, {P: 8, Steps: 1, Median: 5}}
	if r := s.Result(); !slices.Equal(r.Samples, want) || r.P != 8 {
		t.Errorf("%d of %+v", r.P, r.Samples)
	}
	s = NewSearch(1, 1, 1)
	if r := s.Result(); r.P != 0 || len(r.Lines()) != 2 {
		t.Errorf("nothing measured: %+v", r)
	}
	s.Add(1, nil)
	if got := strings.Join(s.Result().Lines(), "|"); !strings.HasPrefix(got, "P      1: left out: no step was measured|") {
		t.Error(got)
	}
}
