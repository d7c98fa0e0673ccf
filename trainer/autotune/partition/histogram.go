package partition

import "fmt"

// maxBuckets bounds a histogram.
const maxBuckets = 4096

// Histogram counts how often rows of a table travelled, by at most 4096
// buckets of equally many rows, of which the last may have fewer. It is used
// by one goroutine at a time.
type Histogram struct {
	width  int       // rows of a bucket
	counts []float64 // by bucket
}

// NewHistogram returns an empty histogram of a table of so many rows, at
// least one.
func NewHistogram(rows int) *Histogram {
	if rows < 1 {
		panic(fmt.Sprintf("histogram of %d rows", rows))
	}
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

func ceil(a, b int) int {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
