package partition

import (
	"math"
	"slices"
	"sort"
)

// maxBuckets bounds a histogram.
const maxBuckets = 4096

// Histogram counts how often rows of a table travelled, by at most 4096
// buckets of equally many rows, of which the last may have fewer. It is used
// by one goroutine at a time.
type Histogram struct {
	width  int       // number of rows in a bucket
	counts []float64 // by bucket: how often its rows travelled
}

// NewHistogram returns an empty histogram of a table of so many rows, at
// least one.
func NewHistogram(rows int) *Histogram {
	width := ceil(rows, maxBuckets)
	return &Histogram{width: width, counts: make([]float64, ceil(rows, width))}
}

// Add counts each of rows once, all of which are of the table.
func (h *Histogram) Add(rows []int64) {
	for _, row := range rows {
		h.counts[int(row)/h.width]++
	}
}

// Counts returns the counts by bucket, which are the histogram's own.
func (h *Histogram) Counts() []float64 { return h.counts }

// ceil is a/b, rounded up; a+b may overflow.
func ceil(a, b int) int { return a/b + min(a%b, 1) }

// near is how much heavier than the least possible maximum a piece may be, as a
// part of it, so that the piece ends with a bucket.
const near = 0.05

// Cut returns the bounds of parts of the rows [0, rows): part i is
// [bounds[i], bounds[i+1]), the first bound is 0 and the last is rows.
//
// Counts by bucket, as of a [Histogram] of the table, say how often rows
// travel; the heaviest part is at most 5 % heavier than it must be, with rows
// of a bucket taken to be alike. Bounds are those of buckets unless a bucket
// is too heavy for that. Without counts, with only zeros, or with counts that
// are negative or no numbers, parts have equally many rows.
//
// No part is empty, so there are no more than rows. No part has more than
// most rows (0: no limit), which may take more parts than were asked for. The
// same arguments give the same bounds.
func Cut(rows, parts, most int, counts []float64) []int {
	rows = max(rows, 0)
	if most < 1 || most > rows {
		most = max(rows, 1)
	}
	parts = min(max(parts, ceil(rows, most), 1), rows)
	w := newWeight(rows, counts)
	if w == nil {
		return even(rows, parts)
	}
	c := cutter{weight: w, parts: parts, most: most}
	c.limit = c.least() * (1 + near)
	return c.cut()
}

// even cuts in near-equal parts.
func even(rows, parts int) []int {
	bounds := make([]int, 1, parts+1)
	for k := 1; k <= parts; k++ {
		bounds = append(bounds, rows/parts*k+rows%parts*k/parts)
	}
	return bounds
}

// Loads returns how often each part travels, given the bounds of Cut and
// counts that it would accept; without such, the rows of each part.
func Loads(bounds []int, counts []float64) []float64 {
	var loads []float64
	w := newWeight(bounds[len(bounds)-1], counts)
	for i, to := range bounds[1:] {
		load := float64(to - bounds[i])
		if w != nil {
			load = w.until(to) - w.until(bounds[i])
		}
		loads = append(loads, load)
	}
	return loads
}

// weight is the count of the rows before a row, linear within a bucket.
type weight struct {
	rows, width int
	sums        []float64 // by bucket: weight of all rows before it; the last element is the weight of all rows
}

// newWeight returns nil where counts say nothing.
func newWeight(rows int, counts []float64) *weight {
	if len(counts) == 0 || rows < 1 {
		return nil
	}
	w := &weight{rows: rows, width: ceil(rows, len(counts)), sums: []float64{0}}
	total := 0.0
	for _, n := range counts[:min(len(counts), ceil(rows, w.width))] {
		if !(n >= 0) {
			return nil
		}
		total += n
		w.sums = append(w.sums, total)
	}
	if total == 0 || math.IsInf(total, 0) {
		return nil
	}
	return w
}

// start is the first row of a bucket.
func (w *weight) start(bucket int) int { return min(bucket*w.width, w.rows) }

func (w *weight) total() float64 { return w.sums[len(w.sums)-1] }

// until is the weight of the rows before row.
func (w *weight) until(row int) float64 {
	b := row / w.width
	if w.start(b) == row || b+1 >= len(w.sums) {
		return w.sums[min(b, len(w.sums)-1)]
	}
	part := float64(row-w.start(b)) / float64(w.start(b+1)-w.start(b))
	return w.sums[b] + float64(part*(w.sums[b+1]-w.sums[b]))
}

// heaviestRow is the weight of the heaviest row.
func (w *weight) heaviestRow() float64 {
	heaviest := 0.0
	for b := range len(w.sums) - 1 {
		heaviest = max(heaviest, (w.sums[b+1]-w.sums[b])/float64(w.start(b+1)-w.start(b)))
	}
	return heaviest
}

// last is the last row in [from, to] that has at most so much weight before
// it; from has.
func (w *weight) last(from, to int, most float64) int {
	return from + sort.Search(to-from, func(i int) bool { return w.until(from+i+1) > most })
}

// nearest is the bound of a bucket: of the bucket that has the weight at inside,
// the nearer one.
func (w *weight) nearest(at float64) int {
	b, _ := slices.BinarySearch(w.sums, at)
	if b > 0 && at-w.sums[b-1] < w.sums[b]-at {
		b--
	}
	return w.start(b)
}

// cutter cuts in parts with at most limit weight and most rows each.
type cutter struct {
	*weight
	parts, most int     // number of parts; most rows in a part
	limit       float64 // most weight of a part
}

// least is the smallest limit with which so many parts hold all rows, found
// by bisection.
func (c *cutter) least() float64 {
	low := max(c.total()/float64(c.parts), c.heaviestRow())
	high := c.total()
	for range 50 {
		c.limit = low + (high-low)/2
		if c.suffices() {
			high = c.limit
		} else {
			low = c.limit
		}
	}
	return high
}

// suffices makes every part as long as may be.
func (c *cutter) suffices() bool {
	at := 0
	for range c.parts {
		if at = c.reach(at); at == c.rows {
			return true
		}
	}
	return false
}

// reach is the end of the longest part from a row on.
func (c *cutter) reach(from int) int {
	return max(min(from+1, c.rows), c.last(from, from+min(c.most, c.rows-from), c.until(from)+c.limit))
}

// back is the start of the longest part up to a row.
func (c *cutter) back(to int) int {
	least := c.until(to) - c.limit
	from := max(0, to-c.most)
	return min(max(to-1, 0), from+sort.Search(to-from, func(i int) bool { return c.until(from+i) >= least }))
}

// cut takes, bound by bound, an equal share of what is left, as far as the
// limits of this part and of those to come allow.
func (c *cutter) cut() []int {
	earliest := make([]int, c.parts+1) // by bound, so that the parts after it suffice
	earliest[c.parts] = c.rows
	for k := c.parts - 1; k > 0; k-- {
		earliest[k] = c.back(earliest[k+1])
	}
	bounds := make([]int, 1, c.parts+1)
	for k := 1; k < c.parts; k++ {
		before := bounds[k-1]
		low := max(earliest[k], before+1)
		high := max(low, min(c.reach(before), c.rows-(c.parts-k)))
		bounds = append(bounds, min(max(c.end(before, c.parts-k+1), low), high))
	}
	return append(bounds, c.rows)
}

// end is the end of the next of so many parts: that of a bucket, or a row inside
// one if no bucket ends near the share.
func (c *cutter) end(from, parts int) int {
	share := (c.total() - c.until(from)) / float64(parts)
	at := c.until(from) + share
	to := c.nearest(at)
	if math.Abs(c.until(to)-at) > near/2*share {
		to = c.last(from, c.rows, at)
	}
	return to
}
