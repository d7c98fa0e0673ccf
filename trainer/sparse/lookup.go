package sparse

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/plx-run/plx/trainer/wire"
)

// Lookup maps the positions of a batch to the rows of a table: each position
// uses one row, and several may use the same. The zero value is ready for use.
// A Lookup reuses its memory from batch to batch.
type Lookup[T wire.Float] struct {
	unique   []int64    // the rows that the batch uses, ascending, without duplicates
	order    []position // the positions of the batch, sorted by row; positions with equal rows keep their order
	spare    []position // scratch memory for sorting order
	combined Rows[T]
}

// position is an index in a batch, with the row of the table that the batch
// uses there.
type position struct {
	row int64
	at  int // index of the position in the batch
}

// Set sets the rows that the positions of a batch use, in any order and with
// duplicates. It returns the rows ascending and without duplicates. The result
// is valid until the next Set.
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

// sort sorts order by row, and keeps the order of positions that use the same
// row. It is a radix sort: it sorts by one byte of the row at a time, the
// lowest first.
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

// Gather fills a slice (into) with rows: each position of the batch gets the
// row that it uses. rows contains the rows that Set returned, in that order.
func (l *Lookup[T]) Gather(rows []T, width int, into []T) {
	l.check(len(l.unique), rows, width)
	l.check(len(l.order), into, width)
	l.each(func(_ bool, unique, at int) {
		copy(into[at*width:(at+1)*width], rows[unique*width:(unique+1)*width])
	})
}

// Combine returns for each row the sum of the gradients of all positions that
// use it, added in the order of positions. values has one gradient row per
// position. The result is valid until the next Set or Combine.
func (l *Lookup[T]) Combine(values []T, width int) Rows[T] {
	l.check(len(l.order), values, width)
	l.combined.Index = append(l.combined.Index[:0], l.unique...)
	l.combined.Values = resize(l.combined.Values, len(l.unique)*width)
	l.combined.Width = width
	l.each(func(first bool, unique, at int) {
		sum, more := l.combined.Row(unique), values[at*width:(at+1)*width]
		if first {
			copy(sum, more) // copied instead of added to zero: 0 + -0 would be 0, not -0
			return
		}
		for i, v := range more {
			sum[i] += v
		}
	})
	return l.combined
}

// each calls do for every position, sorted by row. The argument first is true
// for the first position of a row. The argument unique is the index of the row
// in l.unique, and at is the index of the position in the batch.
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

// Requests records which rows of a shard the workers request for a step. It
// stores the requests for two consecutive steps. The zero value contains no
// requests. The caller must hold a lock.
type Requests struct {
	rows [2][]uint64 // requests for step s are in rows[s%2]: one bit per row of the shard, set if a worker has requested the row
	of   [2]uint64   // of[i] is 1 + the step whose requests are in rows[i]; 0 means none
}

// Add records that a worker requests rows for a step. index holds the row
// numbers, and [lo, hi) is the range of rows of the shard. Add deletes the
// requests for the step two steps earlier.
func (w *Requests) Add(step uint64, lo, hi int64, index []int64) {
	at := step % 2
	if w.of[at] > step+1 {
		return // a request for a past step is ignored
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

// Split divides rows into those that no worker requested for a step (free) and
// all others (taken). If nothing was recorded for the step, no row is free. lo
// is the first row of the shard, as in Add.
func (w *Requests) Split(step uint64, lo int64, index []int64) (free, taken []int64) {
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

// Common returns the rows that are in both ascending lists.
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

// Union returns the rows that are in at least one of the ascending lists,
// ascending and without duplicates.
func Union(lists ...[]int64) []int64 {
	if len(lists) == 1 {
		return lists[0]
	}
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}
