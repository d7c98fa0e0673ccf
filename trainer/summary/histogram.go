package summary

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

// Histogram is the distribution of the elements of a tensor, as TensorBoard
// displays it.
type Histogram struct {
	Name              string
	Least, Most       float64 // smallest and largest finite element
	Number            float64 // number of finite elements that were counted; if 0, all other numeric fields are 0 too
	Sum, SumOfSquares float64
	Bounds            []float64 // upper bounds of the buckets, ascending; the lower bound of a bucket is the upper bound of the previous one
	Counts            []float64 // number of elements in each bucket
}

// buckets is the number of buckets into which NewHistogram divides the range
// of the elements.
const buckets = 30

// mostElements is the number of elements of a tensor that NewHistogram
// examines at most.
const mostElements = 1 << 20

// NewHistogram counts the finite elements of values in buckets of equal width.
// If values has more than mostElements elements, it examines only every n-th
// element, and the counts are those of the examined elements.
func NewHistogram[T float32 | float64](name string, values []T) Histogram {
	stride := (len(values) + mostElements - 1) / mostElements
	h := Histogram{Name: strings.ToValidUTF8(name, "\ufffd"), Least: math.Inf(1), Most: math.Inf(-1)}
	each := func(do func(x float64)) {
		for i := 0; i < len(values); i += stride {
			if x := float64(values[i]); !math.IsNaN(x) && !math.IsInf(x, 0) {
				do(x)
			}
		}
	}
	each(func(x float64) {
		h.Least, h.Most = min(h.Least, x), max(h.Most, x)
		h.Number++
		h.Sum += x
		h.SumOfSquares += x * x
	})
	if h.Number == 0 {
		return Histogram{Name: h.Name}
	}
	h.divide()
	each(func(x float64) {
		bucket, _ := slices.BinarySearch(h.Bounds, x) // always a valid index, because the last bound is the largest element
		h.Counts[bucket]++
	})
	return h
}

// divide sets the bounds of the buckets, which have equal width. It makes a
// single bucket if the width is so small that it would round to nothing, or
// infinite.
func (h *Histogram) divide() {
	if width := (h.Most - h.Least) / buckets; h.Least+width > h.Least && !math.IsInf(width, 0) {
		for i := 1; i < buckets; i++ {
			h.Bounds = append(h.Bounds, h.Least+width*float64(i))
		}
	}
	h.Bounds = append(h.Bounds, h.Most)
	h.Counts = make([]float64, len(h.Bounds))
}

// The keys of the protocol buffer fields of TensorFlow's message
// HistogramProto: five doubles and two packed lists of doubles.
const (
	valueHistogram  = 5<<3 | 2
	histogramLeast  = 1<<3 | 1
	histogramMost   = 2<<3 | 1
	histogramNumber = 3<<3 | 1
	histogramSum    = 4<<3 | 1
	histogramSquare = 5<<3 | 1
	histogramBounds = 6<<3 | 2
	histogramCounts = 7<<3 | 2
)

// appendValue appends the histogram to b, encoded as TensorFlow's message
// Summary.Value.
func (h Histogram) appendValue(b []byte) []byte {
	var message []byte
	for _, f := range []struct {
		key byte
		x   float64
	}{
		{histogramLeast, h.Least}, {histogramMost, h.Most}, {histogramNumber, h.Number},
		{histogramSum, h.Sum}, {histogramSquare, h.SumOfSquares},
	} {
		message = appendDouble(append(message, f.key), f.x)
	}
	message = appendBytes(message, histogramBounds, packed(h.Bounds))
	message = appendBytes(message, histogramCounts, packed(h.Counts))
	return appendBytes(appendBytes(b, valueTag, []byte(h.Name)), valueHistogram, message)
}

func packed(list []float64) (b []byte) {
	for _, x := range list {
		b = appendDouble(b, x)
	}
	return b
}

func appendDouble(b []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
}
