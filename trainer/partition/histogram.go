package partition

import "fmt"

// maxBuckets bounds a histogram.
const maxBuckets = 4096

// Histogram counts how often rows of a table travelled, by at most 4096
// buckets of equally many rows, of which the last may have fewer. It is used
// by one goroutine at a time.
type Histogram struct {
	rows, width int
	counts      []float64
}

// NewHistogram returns an empty histogram of a table of so many rows, at
// least one.
func NewHistogram(rows int) *Histogram {
	if rows < 1 {
		panic(fmt.Sprintf("histogram of %d rows", rows))
	}
	width := ceil(rows, maxBuckets)
	return &Histogram{rows: rows, width: width, counts: make([]float64, ceil(rows, width))}
}

// Add counts each of rows once, all of which are of the table.
func (h *Histogram) Add(rows []int64) {
	for _, row := range rows {
		h.counts[int(row)/h.width]++
	}
}

// Counts returns the counts by bucket, which are the histogram's own.
func (h *Histogram) Counts() []float64 { return h.counts }

// Set replaces the counts, such as by the sum over all workers; they are of a
// histogram of as many rows.
func (h *Histogram) Set(counts []float64) {
	if len(counts) != len(h.counts) {
		panic(fmt.Sprintf("%d counts for a histogram of %d buckets", len(counts), len(h.counts)))
	}
	copy(h.counts, counts)
}

func ceil(a, b int) int {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
