package sparse

import (
	"fmt"
	"math/bits"

	"github.com/plx-run/plx/trainer/wire"
)

// Rows move from one shard holder to another as a list of rows, as AppendIndex
// writes it. For each row its values and its optimiser slots follow.

// Updated appends to into the rows of [from, to) that were ever updated or
// filled, ascending and at most most of them. All other rows have their drawn
// values and no optimiser state.
func (t *Table[T]) Updated(from, to int64, most int, into []int64) []int64 {
	from, to = max(from, t.lo), min(to, t.hi)
	for row := from; row < to && most > 0; {
		i := row - t.lo
		word := t.stored[i/64] >> (i % 64)
		if word == 0 {
			row += 64 - i%64
			continue
		}
		if row += int64(bits.TrailingZeros64(word)); row >= to {
			break
		}
		into = append(into, row)
		row, most = row+1, most-1
	}
	return into
}

// MoveSize is the number of bytes of one row with its slots.
func (t *Table[T]) MoveSize() int {
	var one [1]T
	return t.width * len(wire.Bytes(one[:])) * (1 + len(t.state.Slots()))
}

// Export appends rows with their slots. Updated must have returned the rows;
// they are strictly ascending.
func (t *Table[T]) Export(b []byte, index []int64) []byte {
	b = AppendIndex(b, index)
	slots := t.state.Slots()
	for _, row := range index {
		at := int(row-t.lo) * t.width
		b = append(b, wire.Bytes(t.row(row))...)
		for _, slot := range slots {
			b = append(b, wire.Bytes(slot[at:at+t.width])...)
		}
	}
	return b
}

// Import takes what Export wrote of another table of the variable: at least one
// row of [lo, hi). It returns the row after the last one. If it fails it
// changes nothing.
func (t *Table[T]) Import(b []byte, lo, hi int64) (next int64, err error) {
	if lo < t.lo || hi > t.hi {
		return 0, fmt.Errorf("rows [%d, %d) are not all in [%d, %d)", lo, hi, t.lo, t.hi)
	}
	size := t.MoveSize()
	index, rest, err := decodeIndex(b, lo, hi, 1+size, nil)
	if err != nil {
		return 0, err
	}
	if len(index) == 0 || len(rest) != len(index)*size {
		return 0, fmt.Errorf("%d bytes for %d rows of %d, want one at least", len(rest), len(index), size)
	}
	slots := t.state.Slots()
	for _, row := range index {
		at := int(row-t.lo) * t.width
		rest = rest[copy(wire.Bytes(t.row(row)), rest):]
		for _, slot := range slots {
			rest = rest[copy(wire.Bytes(slot[at:at+t.width]), rest):]
		}
		t.store(row)
	}
	return index[len(index)-1] + 1, nil
}

// Adopt copies rows with their slots from another table of the same variable
// and rule. Both tables must hold them.
func (t *Table[T]) Adopt(from *Table[T], index []int64) {
	mine, slots := t.state.Slots(), from.state.Slots()
	for _, row := range index {
		copy(t.row(row), from.row(row))
		at, there := int(row-t.lo)*t.width, int(row-from.lo)*t.width
		for i, slot := range slots {
			copy(mine[i][at:at+t.width], slot[there:there+t.width])
		}
		t.store(row)
	}
}
