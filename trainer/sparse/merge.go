package sparse

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/wire"
)

// Merge adds two contributions of the same width. It returns the rows of both;
// rows in both are a + b. a is the lower subtree. The result uses into's memory
// if it is large enough; into must not share memory with a or b.
func Merge[T wire.Float](into, a, b Rows[T]) Rows[T] {
	if a.Width != b.Width {
		panic(fmt.Sprintf("sparse: merge rows of width %d and %d", a.Width, b.Width))
	}
	into = into.reset(a.Width, union(a.Index, b.Index))
	for i, j := 0, 0; i < len(a.Index) || j < len(b.Index); {
		switch n := 0; {
		case j == len(b.Index) || i < len(a.Index) && a.Index[i] < b.Index[j]:
			n = alone(a.Index[i:], b.Index[j:])
			into = into.add(a.slice(i, i+n))
			i += n
		case i == len(a.Index) || b.Index[j] < a.Index[i]:
			n = alone(b.Index[j:], a.Index[i:])
			into = into.add(b.slice(j, j+n))
			j += n
		default:
			into = into.addBoth(a.Index[i], a.Row(i), b.Row(j))
			i, j = i+1, j+1
		}
	}
	return into
}

// reset empties r, with room for n rows.
func (r Rows[T]) reset(width, n int) Rows[T] {
	return Rows[T]{
		Index:  slices.Grow(r.Index[:0], n),
		Values: slices.Grow(r.Values[:0], n*width),
		Width:  width,
	}
}

// union counts the rows that a or b has.
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

// alone counts the first rows of index that come before all of other.
func alone(index, other []int64) int {
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
