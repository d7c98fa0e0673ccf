package sparse

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/wire"
)

// Rows are some rows of a table: Values[i*Width:(i+1)*Width] is row Index[i].
// Index is strictly ascending and len(Values) is len(Index)*Width.
type Rows[T wire.Float] struct {
	Index  []int64
	Values []T
	Width  int
}

// Row returns the memory of the i-th row.
func (r Rows[T]) Row(i int) []T { return r.Values[i*r.Width : (i+1)*r.Width] }

// Check reports why r is not rows of width elements within [lo, hi).
func (r Rows[T]) Check(lo, hi int64, width int) error {
	if r.Width != width || len(r.Values) != len(r.Index)*width {
		return fmt.Errorf("%d rows of width %d with %d values: want width %d and as many values as that makes",
			len(r.Index), r.Width, len(r.Values), width)
	}
	return checkIndex(r.Index, lo, hi)
}

func checkIndex(index []int64, lo, hi int64) error {
	for i, row := range index {
		if row < lo || row >= hi {
			return outside(row, lo, hi)
		}
		if i > 0 && row <= index[i-1] {
			return fmt.Errorf("row %d after row %d: want ascending rows, each once", row, index[i-1])
		}
	}
	return nil
}

func outside(row, lo, hi int64) error {
	return fmt.Errorf("row %d is outside [%d, %d)", row, lo, hi)
}

// Cut returns the rows of r within [lo, hi), without a copy.
func (r Rows[T]) Cut(lo, hi int64) Rows[T] {
	from, _ := slices.BinarySearch(r.Index, lo)
	to, _ := slices.BinarySearch(r.Index[from:], hi)
	return r.slice(from, from+to)
}

// slice returns rows from to to. The result has no spare capacity, so appending
// to it cannot write into the next piece.
func (r Rows[T]) slice(from, to int) Rows[T] {
	r.Index = r.Index[from:to:to]
	r.Values = r.Values[from*r.Width : to*r.Width : to*r.Width]
	return r
}

// SumOfSquares appends the sum of squares of every row, added like
// optimizer.SumOfSquares.
func (r Rows[T]) SumOfSquares(into []float64) []float64 {
	for i := range r.Index {
		into = append(into, optimizer.SumOfSquares(r.Row(i)))
	}
	return into
}
