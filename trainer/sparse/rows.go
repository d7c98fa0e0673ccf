package sparse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/wire"
)

// Rows contains some rows of a table: Values[i*Width:(i+1)*Width] are the
// values of row Index[i]. Index is strictly ascending, and len(Values) is
// len(Index)*Width.
type Rows[T wire.Float] struct {
	Index  []int64
	Values []T
	Width  int
}

// Row returns the values of row Index[i], without a copy.
func (r Rows[T]) Row(i int) []T { return r.Values[i*r.Width : (i+1)*r.Width] }

// Check returns an error unless all rows of r are in [lo, hi) and have width
// elements.
func (r Rows[T]) Check(lo, hi int64, width int) error {
	if r.Width != width || len(r.Values) != len(r.Index)*width {
		return fmt.Errorf("%d rows of width %d with %d values: want width %d, and rows times width values",
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

// Cut returns the rows of r that are in [lo, hi), without a copy.
func (r Rows[T]) Cut(lo, hi int64) Rows[T] {
	from, _ := slices.BinarySearch(r.Index, lo)
	to, _ := slices.BinarySearch(r.Index[from:], hi)
	return r.slice(from, from+to)
}

// slice returns the rows with positions [from, to) in r, without a copy. The
// result has no spare capacity, so appending to it cannot overwrite the rows
// that follow.
func (r Rows[T]) slice(from, to int) Rows[T] {
	r.Index = r.Index[from:to:to]
	r.Values = r.Values[from*r.Width : to*r.Width : to*r.Width]
	return r
}

// SumOfSquares appends the sum of squares of each row, added in the order of
// optimizer.SumOfSquares.
func (r Rows[T]) SumOfSquares(into []float64) []float64 {
	for i := range r.Index {
		into = append(into, optimizer.SumOfSquares(r.Row(i)))
	}
	return into
}

// Merge adds two gradient sums of the same width. The result has the rows of
// both. A row that is in both is a + b. The trainer adds gradients in a binary
// tree; a must be the sum of the lower subtree. Merge stores the result in the
// memory of into if that is large enough; into must not share memory with a or
// b.
func Merge[T wire.Float](into, a, b Rows[T]) Rows[T] {
	if a.Width != b.Width {
		panic(fmt.Sprintf("sparse: merge rows of width %d and %d", a.Width, b.Width))
	}
	into = into.reset(a.Width, union(a.Index, b.Index))
	for i, j := 0, 0; i < len(a.Index) || j < len(b.Index); {
		switch n := 0; {
		case j == len(b.Index) || i < len(a.Index) && a.Index[i] < b.Index[j]:
			n = countBefore(a.Index[i:], b.Index[j:])
			into = into.add(a.slice(i, i+n))
			i += n
		case i == len(a.Index) || b.Index[j] < a.Index[i]:
			n = countBefore(b.Index[j:], a.Index[i:])
			into = into.add(b.slice(j, j+n))
			j += n
		default:
			into = into.addBoth(a.Index[i], a.Row(i), b.Row(j))
			i, j = i+1, j+1
		}
	}
	return into
}

// reset returns r without rows, with capacity for n rows.
func (r Rows[T]) reset(width, n int) Rows[T] {
	return Rows[T]{
		Index:  slices.Grow(r.Index[:0], n),
		Values: slices.Grow(r.Values[:0], n*width),
		Width:  width,
	}
}

// union returns the number of rows that are in a or b.
func union(a, b []int64) int {
	n := len(a) + len(b)
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] < b[j]:
			i++
		case a[i] > b[j]:
			j++
		default:
			i, j, n = i+1, j+1, n-1
		}
	}
	return n
}

// countBefore returns the number of rows at the start of index that are less than
// the first row of other.
func countBefore(index, other []int64) int {
	if len(other) == 0 {
		return len(index)
	}
	n := 1
	for n < len(index) && index[n] < other[0] {
		n++
	}
	return n
}

func (r Rows[T]) add(more Rows[T]) Rows[T] {
	r.Index = append(r.Index, more.Index...)
	r.Values = append(r.Values, more.Values...)
	return r
}

func (r Rows[T]) addBoth(row int64, a, b []T) Rows[T] {
	r.Index = append(r.Index, row)
	r.Values = append(r.Values, a...)
	sum := r.Values[len(r.Values)-len(a):]
	b = b[:len(sum)]
	for i := range sum {
		sum[i] += b[i]
	}
	return r
}

// In frames, a list of rows is encoded as
//
//	uvarint count
//	uvarint first row, then for each further row the number of rows skipped
//
// The values of the rows may follow:
//
//	count*width numbers, little-endian, in the order of memory
//
// Every list has exactly one encoding, because Decode rejects numbers that are
// encoded longer than necessary.

// AppendIndex appends an encoded list of row numbers. index must be strictly
// ascending and not negative.
func AppendIndex(b []byte, index []int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(index)))
	next := int64(0)
	for _, row := range index {
		b = binary.AppendUvarint(b, uint64(row-next))
		next = row + 1
	}
	return b
}

// Append appends the encoded rows of r. It writes the same bytes as
// AppendIndex followed by wire.Bytes(r.Values). A sender may send these two
// separately to avoid the copy.
func Append[T wire.Float](b []byte, r Rows[T]) []byte {
	return append(AppendIndex(b, r.Index), wire.Bytes(r.Values)...)
}

// DecodeIndex decodes a list of row numbers, which must all be in [lo, hi). It
// stores the result in the memory of the slice into if that is large enough.
// rest is the remaining part of b.
func DecodeIndex(b []byte, lo, hi int64, into []int64) (index []int64, rest []byte, err error) {
	return decodeIndex(b, lo, hi, 1, into)
}

// Decode decodes rows that Append has encoded. It stores the result in the
// memory of into if that is large enough. All rows must be in [lo, hi) and
// have width elements. b must contain nothing else.
func Decode[T wire.Float](b []byte, lo, hi int64, width int, into Rows[T]) (Rows[T], error) {
	var one T
	if width < 1 || int64(width) > maxBytes/int64(unsafe.Sizeof(one)) {
		return into, fmt.Errorf("rows of width %d: want at least 1 and at most %d bytes", width, int64(maxBytes))
	}
	size := int(unsafe.Sizeof(one)) * width
	index, rest, err := decodeIndex(b, lo, hi, 1+size, into.Index)
	if err != nil {
		return into, err
	}
	if len(rest) != len(index)*size {
		return into, fmt.Errorf("%d bytes of values for %d rows of %d", len(rest), len(index), size)
	}
	into.Index, into.Width = index, width
	into.Values = resize(into.Values, len(index)*width)
	copy(wire.Bytes(into.Values), rest) // rest may be unaligned, so it is copied
	return into, nil
}

// decodeIndex decodes a list of row numbers. The parameter least is the
// smallest number of bytes that b has per row. decodeIndex allocates memory
// only if b is long enough for the number of rows that it announces.
func decodeIndex(b []byte, lo, hi int64, least int, into []int64) (index []int64, rest []byte, err error) {
	count, b, err := uvarint(b)
	if err != nil {
		return nil, nil, fmt.Errorf("number of rows: %w", err)
	}
	if lo > hi || count > uint64(hi-lo) || count > uint64(len(b)/least) {
		return nil, nil, fmt.Errorf("%d rows from [%d, %d) in %d bytes", count, lo, hi, len(b))
	}
	index = resize(into, int(count))
	next := int64(0)
	for i := range index {
		var skipped uint64
		if skipped, b, err = uvarint(b); err != nil {
			return nil, nil, fmt.Errorf("row %d of %d: %w", i, count, err)
		}
		if next >= hi || skipped >= uint64(hi-next) || next+int64(skipped) < lo {
			return nil, nil, fmt.Errorf("row %d of %d: %d after %d is outside [%d, %d)", i, count, skipped, next, lo, hi)
		}
		index[i] = next + int64(skipped)
		next = index[i] + 1
	}
	return index, b, nil
}

var errNumber = errors.New("invalid varint, or one longer than necessary")

func uvarint(b []byte) (x uint64, rest []byte, err error) {
	x, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, nil, errNumber
	}
	return x, b[n:], nil
}

func resize[E any](s []E, n int) []E { return slices.Grow(s[:0], n)[:n] }
