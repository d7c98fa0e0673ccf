package partition

import (
	"math"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/random"
)

func TestHistogram(t *testing.T) {
	for _, c := range []struct{ rows, buckets, width int }{
		{1, 1, 1}, {7, 7, 1}, {4096, 4096, 1}, {4097, 2049, 2}, {8192, 4096, 2}, {100_000, 4000, 25}, {1 << 40, 4096, 1 << 28},
	} {
		h := NewHistogram(c.rows)
		if len(h.Counts()) != c.buckets {
			t.Fatalf("%d rows: %d buckets, want %d", c.rows, len(h.Counts()), c.buckets)
		}
		last := int64(c.rows - 1)
		h.Add([]int64{0, last})
		h.Add([]int64{int64(min(c.width, c.rows)) - 1, last})
		want := make([]float64, c.buckets)
		want[0] += 2
		want[c.buckets-1] += 2
		if !slices.Equal(h.Counts(), want) {
			t.Errorf("%d rows: other counts", c.rows)
		}
		if w := newWeight(c.rows, h.Counts()); w.width != c.width || len(w.sums) != c.buckets+1 {
			t.Errorf("%d rows: Cut reads the counts as of buckets of %d, they are of %d", c.rows, w.width, c.width)
		}
	}
}

func TestHistogramPanicsOnForeignRows(t *testing.T) {
	for name, f := range map[string]func(){
		"another row": func() { NewHistogram(5).Add([]int64{5}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestCut(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		rows, parts, most int
		counts            []float64
		want              []int
	}{
		{10, 3, 0, nil, []int{0, 3, 6, 10}},
		{10, 1, 0, nil, []int{0, 10}},
		{10, 0, 0, nil, []int{0, 10}},
		{3, 10, 0, nil, []int{0, 1, 2, 3}},
		{10, 2, 3, nil, []int{0, 2, 5, 7, 10}},
		{10, 2, 5, nil, []int{0, 5, 10}},
		{0, 4, 0, nil, []int{0}},
		{-3, 4, 7, nil, []int{0}},
		{4, 2, 0, []float64{0, 0, 0, 0}, []int{0, 2, 4}},
		{4, 2, 0, []float64{1, nan, 0, 0}, []int{0, 2, 4}},
		{4, 2, 0, []float64{9, 0, 0, -1}, []int{0, 2, 4}},
		{4, 2, 0, []float64{9, inf, 0, 1}, []int{0, 2, 4}},
		{4, 2, 0, []float64{1e308, 1e308, 1e308, 1e308}, []int{0, 2, 4}},
		{4, 2, 0, []float64{3, 1, 1, 1}, []int{0, 1, 4}},
		{4, 2, 2, []float64{3, 1, 1, 1}, []int{0, 2, 4}},
		{4, 3, 0, []float64{0, 0, 0, 5}, []int{0, 2, 3, 4}},
		// Buckets of 10 rows: the parts end at bucket ends, if the weights
		// allow that.
		{100, 4, 0, []float64{10, 10, 10, 10, 10, 10, 10, 10, 10, 10}, []int{0, 25, 50, 75, 100}},
		{100, 2, 0, []float64{11, 10, 10, 10, 10, 10, 10, 10, 10, 10}, []int{0, 50, 100}},
		{100, 5, 0, []float64{10, 10, 10, 10, 10, 10, 10, 10, 10, 10}, []int{0, 20, 40, 60, 80, 100}},
		{100, 2, 0, []float64{99, 0, 0, 0, 0, 0, 0, 0, 0, 1}, []int{0, 5, 100}}, // within the hot one
		{math.MaxInt, 2, 0, nil, []int{0, math.MaxInt / 2, math.MaxInt}},
		{math.MaxInt, 1, math.MaxInt/2 + 1, []float64{1, 1}, []int{0, math.MaxInt/2 + 1, math.MaxInt}},
	} {
		if got := Cut(c.rows, c.parts, c.most, c.counts); !slices.Equal(got, c.want) {
			t.Errorf("Cut(%d, %d, %d, %v) = %v, want %v", c.rows, c.parts, c.most, c.counts, got, c.want)
		}
	}
}

// checkCut calls Cut and checks what its documentation promises for any
// arguments.
func checkCut(t *testing.T, rows, parts, most int, counts []float64) []int {
	t.Helper()
	bounds := Cut(rows, parts, most, counts)
	if !slices.Equal(bounds, Cut(rows, parts, most, counts)) {
		t.Fatal("other bounds the second time")
	}
	wanted := max(parts, 1)
	if most > 0 {
		wanted = max(wanted, ceil(rows, most))
	}
	if wanted = min(wanted, rows); len(bounds) != wanted+1 || bounds[0] != 0 || bounds[wanted] != rows {
		t.Fatalf("Cut(%d, %d, %d) has bounds %v, want %d parts", rows, parts, most, bounds, wanted)
	}
	for i, to := range bounds[1:] {
		if n := to - bounds[i]; n < 1 || most > 0 && n > most {
			t.Fatalf("Cut(%d, %d, %d): part %d has %d rows of %v", rows, parts, most, i, n, bounds)
		}
	}
	return bounds
}

// bestCut returns the smallest possible weight of the heaviest part. It
// computes that by dynamic programming over all bounds.
func bestCut(w *weight, parts, most int) float64 {
	best := make([]float64, w.rows+1) // of the rows before
	for i := range best[1:] {
		best[i+1] = math.Inf(1)
	}
	for range parts {
		next := make([]float64, w.rows+1)
		for to := range next {
			next[to] = math.Inf(1)
			for from := max(0, to-most); from < to; from++ {
				next[to] = min(next[to], max(best[from], w.until(to)-w.until(from)))
			}
		}
		best = next
	}
	return best[w.rows]
}

// No part is more than 5 % heavier than in the best division, which bestCut
// finds.
func TestCutIsNearTheBest(t *testing.T) {
	for i := range uint64(400) {
		s := random.New(6, "cut").Derive(i)
		draw := func(k uint64, from, to int) int { u, _ := s.Pair(k); return from + int(u*float64(to-from)) }
		rows := draw(0, 1, 60)
		parts, most := draw(1, 1, min(12, rows)+1), draw(2, 0, 2)*draw(3, 1, rows+1)
		counts := make([]float64, draw(4, 1, rows+1))
		for b := range counts {
			u, zero := s.Pair(uint64(10 + b))
			if zero < 0.7 {
				counts[b] = math.Floor(10 / (u + 0.01))
			}
		}
		bounds := checkCut(t, rows, parts, most, counts)
		w := newWeight(rows, counts)
		if w == nil {
			continue
		}
		limit := rows
		if most > 0 {
			limit = most
		}
		best := bestCut(w, len(bounds)-1, limit)
		if got := slices.Max(Loads(bounds, counts)); got > best*(1+near)*(1+1e-9) {
			t.Errorf("Cut(%d, %d, %d, %v) = %v has a part of %v, want at most %v", rows, parts, most, counts, bounds, got, best)
		}
	}
}

// In a vocabulary sorted by frequency, all parts are used about equally often.
// They end at bucket ends, except among the most frequent words.
func TestCutZipf(t *testing.T) {
	const rows = 100_000
	h := NewHistogram(rows)
	counts := make([]float64, len(h.Counts()))
	for row := range rows {
		counts[row/25] += 1 - math.Exp(-20_000/float64(row+1)/12) // probability that a step of 20,000 words contains this word
	}
	for _, parts := range []int{2, 8, 64, 256} {
		bounds := checkCut(t, rows, parts, 0, counts)
		loads := Loads(bounds, counts)
		total := 0.0
		for _, load := range loads {
			total += load
		}
		mean := total / float64(parts)
		if slices.Max(loads) > 1.06*mean {
			t.Errorf("%d parts: the heaviest has %v of a mean of %v", parts, slices.Max(loads), mean)
		}
		for _, b := range bounds[:parts] {
			if bucket := counts[b/25]; b%25 != 0 && bucket < 0.04*mean {
				t.Errorf("%d parts: the bound %d is in a bucket of %v, the mean of the parts is %v", parts, b, bucket, mean)
			}
		}
	}
}

func TestLoads(t *testing.T) {
	if got := Loads([]int{0, 3, 10}, nil); !slices.Equal(got, []float64{3, 7}) {
		t.Errorf("rows: %v", got)
	}
	if got := Loads([]int{0, 3, 4, 10}, []float64{8, 2, 6}); !slices.Equal(got, []float64{6, 2, 8}) {
		t.Errorf("counts of buckets of 4: %v", got)
	}
	if got := Loads([]int{0}, nil); len(got) != 0 {
		t.Errorf("no part: %v", got)
	}
}

func FuzzCut(f *testing.F) {
	f.Add(10, 3, 0, []byte{1, 2, 3})
	f.Add(4097, 300, 20, []byte{0, 0, 0, 255, 0, 1})
	f.Add(1<<62, 4096, 1<<52, []byte{255, 0, 9})
	f.Add(5, -1, -1, []byte{254})
	f.Fuzz(func(t *testing.T, rows, parts, most int, raw []byte) {
		rows, parts = max(0, rows), min(parts, 300) // more take long
		if most > 0 {
			most = max(most, rows/300)
		}
		var counts []float64
		for _, b := range raw[:min(len(raw), maxBuckets)] {
			counts = append(counts, math.Exp2(float64(b)/8)-1)
		}
		bounds := checkCut(t, rows, parts, most, counts)
		sum, total := 0.0, 0.0
		for _, load := range Loads(bounds, counts) {
			if load < 0 {
				t.Fatalf("a load of %v", load)
			}
			sum += load
		}
		if w := newWeight(rows, counts); w != nil {
			total = w.total()
		} else {
			total = float64(rows)
		}
		if math.Abs(sum-total) > 1e-6*total {
			t.Fatalf("parts have %v of %v", sum, total)
		}
	})
}
