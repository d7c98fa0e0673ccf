package partition

import (
	"math"
	"slices"
	"sort"
)

// maxBuckets is the largest number of buckets in a histogram.
const maxBuckets = 4096

// Histogram counts how often the rows of an embedding table were transferred.
// It has at most 4096 buckets, each for the same number of rows; the last
// bucket may have fewer. Only one goroutine at a time may use it.
type Histogram struct {
	width  int       // number of rows in a bucket
	counts []float64 // by bucket: how often rows of this bucket were transferred
}

// NewHistogram returns an empty histogram of a table with the given number of
// rows, at least one.
func NewHistogram(rows int) *Histogram {
	width := ceil(rows, maxBuckets)
	return &Histogram{width: width, counts: make([]float64, ceil(rows, width))}
}

// Add adds one to the count of each row in rows, which must be rows of the
// table.
func (h *Histogram) Add(rows []int64) {
	for _, row := range rows {
		h.counts[int(row)/h.width]++
	}
}

// Counts returns the counts by bucket. The slice shares the histogram's
// memory.
func (h *Histogram) Counts() []float64 { return h.counts }

// ceil returns a/b rounded up. Unlike (a+b-1)/b, it cannot overflow.
func ceil(a, b int) int { return a/b + min(a%b, 1) }

// near is a tolerance of Cut, as a fraction. A part may be this much heavier
// than the best possible maximum, so that Cut can end parts at bucket ends.
const near = 0.05

// Cut divides the rows [0, rows) into parts of about the same weight and
// returns their bounds. Part i is [bounds[i], bounds[i+1]); the first bound is
// 0 and the last is rows.
//
// counts are those of a [Histogram] of the table: how often the rows of each
// bucket were transferred. They are the weights; the rows of one bucket count
// as equally heavy. The heaviest part is at most 5 % heavier than in the best
// possible division. Parts end at the end of a bucket, unless one bucket is
// too heavy for that. If counts are missing, all zero, negative or not finite,
// all parts have equally many rows.
//
// No part is empty, so there are at most as many parts as rows. No part has
// more than most rows (0 means no limit); this may need more parts than
// requested. The same arguments always give the same bounds.
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

// even returns the bounds of parts with nearly equal numbers of rows.
func even(rows, parts int) []int {
	bounds := make([]int, 1, parts+1)
	for k := 1; k <= parts; k++ {
		bounds = append(bounds, rows/parts*k+rows%parts*k/parts)
	}
	return bounds
}

// Loads returns how often the rows of each part were transferred. bounds are
// the bounds that Cut returned, and counts those of a [Histogram]. If Cut
// would ignore the counts, Loads returns the number of rows of each part
// instead.
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

// weight says, for each row of a table, how often all rows before it together
// were transferred. Only the sums at bucket starts are stored; between them,
// the weight grows linearly.
type weight struct {
	rows, width int
	sums        []float64 // by bucket: weight of all rows before it; one more element for the weight of all rows
}

// newWeight returns the weight for the counts of a Histogram. It returns nil
// if counts are missing, all zero, negative or not finite.
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

// start returns the first row of a bucket.
func (w *weight) start(bucket int) int { return min(bucket*w.width, w.rows) }

func (w *weight) total() float64 { return w.sums[len(w.sums)-1] }

// until returns the total weight of the rows before row.
func (w *weight) until(row int) float64 {
	b := row / w.width
	if w.start(b) == row || b+1 >= len(w.sums) {
		return w.sums[min(b, len(w.sums)-1)]
	}
	part := float64(row-w.start(b)) / float64(w.start(b+1)-w.start(b))
	return w.sums[b] + float64(part*(w.sums[b+1]-w.sums[b]))
}

// heaviestRow returns the weight of the heaviest row.
func (w *weight) heaviestRow() float64 {
	heaviest := 0.0
	for b := range len(w.sums) - 1 {
		heaviest = max(heaviest, (w.sums[b+1]-w.sums[b])/float64(w.start(b+1)-w.start(b)))
	}
	return heaviest
}

// last returns the last row in [from, to] for which the total weight of all
// rows before it does not exceed the parameter most. This must be true for the
// row from.
func (w *weight) last(from, to int, most float64) int {
	return from + sort.Search(to-from, func(i int) bool { return w.until(from+i+1) > most })
}

// nearest returns the end of a bucket at which the cumulative weight is
// closest to the weight at.
func (w *weight) nearest(at float64) int {
	b, _ := slices.BinarySearch(w.sums, at)
	if b > 0 && at-w.sums[b-1] < w.sums[b]-at {
		b--
	}
	return w.start(b)
}

// cutter divides rows into parts. A part's weight does not exceed the field
// limit, and its number of rows does not exceed the field most.
type cutter struct {
	*weight
	parts, most int     // parts is the number of parts, most the largest number of rows in a part
	limit       float64 // maximal weight of a part
}

// least returns the smallest value of limit (the maximal weight of a part)
// with which c.parts parts can cover all rows. It finds the value by
// bisection.
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

// suffices reports whether c.parts parts can cover all rows within the limits.
// It makes every part as long as possible.
func (c *cutter) suffices() bool {
	at := 0
	for range c.parts {
		if at = c.reach(at); at == c.rows {
			return true
		}
	}
	return false
}

// reach returns the end of the longest allowed part that starts at row from.
func (c *cutter) reach(from int) int {
	return max(min(from+1, c.rows), c.last(from, from+min(c.most, c.rows-from), c.until(from)+c.limit))
}

// back returns the start of the longest allowed part that ends at row to.
func (c *cutter) back(to int) int {
	least := c.until(to) - c.limit
	from := max(0, to-c.most)
	return min(max(to-1, 0), from+sort.Search(to-from, func(i int) bool { return c.until(from+i) >= least }))
}

// cut returns the bounds of the parts. It gives each part an equal share of
// the remaining weight, unless the limits of this part or of the later parts
// forbid that.
func (c *cutter) cut() []int {
	earliest := make([]int, c.parts+1) // earliest[k] is the smallest possible start of part k, from which the parts k and later can still cover all remaining rows
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

// end returns the row at which the next part ends. That part begins at row
// from; it and the parts after it are parts in number. end prefers the end of
// a bucket. If no bucket ends near an equal share of the remaining weight, it
// returns a row inside a bucket.
func (c *cutter) end(from, parts int) int {
	share := (c.total() - c.until(from)) / float64(parts)
	at := c.until(from) + share
	to := c.nearest(at)
	if math.Abs(c.until(to)-at) > near/2*share {
		to = c.last(from, c.rows, at)
	}
	return to
}
