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

// Check says why r is not rows of width elements within [lo, hi).
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

// Cut returns the rows of r within [lo, hi), not a copy.
func (r Rows[T]) Cut(lo, hi int64) Rows[T] {
	from, _ := slices.BinarySearch(r.Index, lo)
	to, _ := slices.BinarySearch(r.Index[from:], hi)
	return r.slice(from, from+to)
}

// slice returns the from-th to the to-th row. Its ends have no room to grow,
// so that appending to one piece cannot reach into the next.
func (r Rows[T]) slice(from, to int) Rows[T] {
	r.Index = r.Index[from:to:to]
	r.Values = r.Values[from*r.Width : to*r.Width : to*r.Width]
	return r
}

// Split appends to into the pieces of r that belong to the owners of
// [bounds[0], bounds[1]), [bounds[1], bounds[2]) and so on, without copying
// rows. Owners that get none have an empty piece. Rows outside all of them
// are an error.
func (r Rows[T]) Split(bounds []int64, into []Rows[T]) ([]Rows[T], error) {
	if len(bounds) < 2 || !slices.IsSorted(bounds) {
		return into, fmt.Errorf("bounds %v: want two or more, ascending", bounds)
	}
	lo, hi := bounds[0], bounds[len(bounds)-1]
	if n := len(r.Index); n > 0 && r.Index[0] < lo {
		return into, outside(r.Index[0], lo, hi)
	} else if n > 0 && r.Index[n-1] >= hi {
		return into, outside(r.Index[n-1], lo, hi)
	}
	for from := 0; len(bounds) > 1; bounds = bounds[1:] {
		n, _ := slices.BinarySearch(r.Index[from:], bounds[1])
		into = append(into, r.slice(from, from+n))
		from += n
	}
	return into, nil
}

// SumOfSquares appends for every row the sum of its squares, added as
// optimizer.SumOfSquares does.
func (r Rows[T]) SumOfSquares(into []float64) []float64 {
	for i := range r.Index {
		into = append(into, optimizer.SumOfSquares(r.Row(i)))
	}
	return into
}
