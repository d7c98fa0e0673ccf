package sparse

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/plx-run/plx/trainer/wire"
)

// Lookup is one use of a table by a batch: the rows, and the positions that
// want them. The zero value is ready for use. It keeps its memory from use to
// use.
type Lookup[T wire.Float] struct {
	unique   []int64    // the rows, each once, ascending
	order    []position // the positions, by row, then in the order of the batch
	spare    []position // memory for sorting order
	combined Rows[T]
}

// position is a place in a batch that wants a row.
type position struct {
	row int64
	at  int // index of the position in the batch
}

// Set takes the rows that a batch wants, in any order and with repetitions. It
// returns them ascending, each once. The result is valid until the next Set.
func (l *Lookup[T]) Set(index []int64) []int64 {
	l.order = resize(l.order, len(index))
	for i, row := range index {
		l.order[i] = position{row, i}
	}
	l.sort()
	l.unique = l.unique[:0]
	for i, p := range l.order {
		if i == 0 || p.row != l.order[i-1].row {
			l.unique = append(l.unique, p.row)
		}
	}
	return l.unique
}

// sort orders by row and keeps the order of positions. It sorts by one byte of
// the row after the other, the lowest first.
func (l *Lookup[T]) sort() {
	if len(l.order) == 0 {
		return
	}
	lowest, highest := l.order[0].row, l.order[0].row
	for _, p := range l.order {
		lowest, highest = min(lowest, p.row), max(highest, p.row)
	}
	l.spare = resize(l.spare, len(l.order))
	for shift := 0; shift < bits.Len64(uint64(highest-lowest)); shift += 8 {
		var starts [256]int
		for _, p := range l.order {
			starts[uint64(p.row-lowest)>>shift&0xff]++
		}
		sum := 0
		for i, n := range starts {
			starts[i] = sum
			sum += n
		}
		for _, p := range l.order {
			digit := uint64(p.row-lowest) >> shift & 0xff
			l.spare[starts[digit]] = p
			starts[digit]++
		}
		l.order, l.spare = l.spare, l.order
	}
}

// Gather writes the wanted row to each position of into. rows are the rows that
// Set returned, one after the other.
func (l *Lookup[T]) Gather(rows []T, width int, into []T) {
	l.check(len(l.unique), rows, width)
	l.check(len(l.order), into, width)
	l.each(func(_ bool, unique, at int) {
		copy(into[at*width:(at+1)*width], rows[unique*width:(unique+1)*width])
	})
}

// Combine adds the values of positions that want the same row, in the order of
// positions. values has a row for each position. The result is valid until the
// next Set or Combine.
func (l *Lookup[T]) Combine(values []T, width int) Rows[T] {
	l.check(len(l.order), values, width)
	l.combined.Index = append(l.combined.Index[:0], l.unique...)
	l.combined.Values = resize(l.combined.Values, len(l.unique)*width)
	l.combined.Width = width
	l.each(func(first bool, unique, at int) {
		sum, more := l.combined.Row(unique), values[at*width:(at+1)*width]
		if first {
			copy(sum, more) // 0 + -0 would not be -0
			return
		}
		for i, v := range more {
			sum[i] += v
		}
	})
	return l.combined
}

// each calls do for every position in order: whether it is the first of its
// row, and the index of its row among the unique rows.
func (l *Lookup[T]) each(do func(first bool, unique, at int)) {
	unique := -1
	for i, p := range l.order {
		first := i == 0 || p.row != l.order[i-1].row
		if first {
			unique++
		}
		do(first, unique, p.at)
	}
}

func (l *Lookup[T]) check(rows int, values []T, width int) {
	if width < 1 || len(values) != rows*width {
		panic(fmt.Sprintf("sparse: %d values for %d rows of width %d", len(values), rows, width))
	}
}

// Wishes records which rows of a shard workers request for a step, for two
// consecutive steps. The zero value knows none. Its user guards it.
type Wishes struct {
	rows [2][]uint64 // by parity of the step: one bit per row, set if a worker has requested the row
	of   [2]uint64   // by parity: 1 + the step; 0 means none
}

// Add records that rows of the shard [lo, hi) are requested for a step. It
// forgets the requests of two steps before.
func (w *Wishes) Add(step uint64, lo, hi int64, index []int64) {
	at := step % 2
	if w.of[at] > step+1 {
		return // a request for a past step changes nothing
	}
	if n := int(hi-lo+63) / 64; len(w.rows[at]) != n {
		w.rows[at] = make([]uint64, n)
	} else if w.of[at] != step+1 {
		clear(w.rows[at])
	}
	w.of[at] = step + 1
	for _, row := range index {
		w.rows[at][(row-lo)/64] |= 1 << ((row - lo) % 64)
	}
}

// Split returns the rows that no worker requested for a step, free, and the
// others. If nothing is known of the step, none is free. lo is that of Add.
func (w *Wishes) Split(step uint64, lo int64, index []int64) (free, taken []int64) {
	at := step % 2
	if w.of[at] == 0 || w.of[at] != step+1 {
		return nil, index
	}
	for _, row := range index {
		if w.rows[at][(row-lo)/64]>>((row-lo)%64)&1 == 0 {
			free = append(free, row)
		} else {
			taken = append(taken, row)
		}
	}
	return free, taken
}

// Common returns the rows that are in both of two ascending lists.
func Common(a, b []int64) (both []int64) {
	if len(a) > len(b) {
		a, b = b, a
	}
	for _, row := range a {
		i, found := slices.BinarySearch(b, row)
		if found {
			both = append(both, row)
		}
		b = b[i:]
	}
	return both
}

// Union returns the rows that are in any of several ascending lists, ascending
// and each once.
func Union(lists ...[]int64) []int64 {
	if len(lists) == 1 {
		return lists[0]
	}
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}
