package sparse

import (
	"fmt"
	"math/bits"
	"slices"

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

// Kept are rows of a table for a checkpoint. Index is strictly ascending.
// Values and every slot of the optimiser hold the rows one after the other. The
// bytes need no alignment.
type Kept struct {
	Index  []int64
	Values []byte
	Slots  [][]byte
}

// Check reports why k is not rows within [lo, hi) with the given bytes per row
// and slots.
func (k Kept) Check(lo, hi int64, rowBytes, slots int) error {
	if len(k.Slots) != slots {
		return fmt.Errorf("%d slots of the optimiser, want %d", len(k.Slots), slots)
	}
	for i := range 1 + slots {
		b := k.Values
		if i > 0 {
			b = k.Slots[i-1]
		}
		if len(b)%rowBytes != 0 || len(b)/rowBytes != len(k.Index) {
			return fmt.Errorf("%d bytes for %d rows of %d", len(b), len(k.Index), rowBytes)
		}
	}
	return checkIndex(k.Index, lo, hi)
}

// Cut returns the rows of k within [lo, hi), without a copy. k must have passed
// Check with the same rowBytes.
func (k Kept) Cut(lo, hi int64, rowBytes int) Kept {
	from, _ := slices.BinarySearch(k.Index, lo)
	to, _ := slices.BinarySearch(k.Index, hi)
	cut := Kept{Index: k.Index[from:to], Values: k.Values[from*rowBytes : to*rowBytes]}
	for _, slot := range k.Slots {
		cut.Slots = append(cut.Slots, slot[from*rowBytes:to*rowBytes])
	}
	return cut
}

// Keep copies every row that was ever updated or filled, with its optimiser
// state. The other rows follow from the seed.
func (t *Table[T]) Keep() Kept {
	n := 0
	for _, word := range t.stored {
		n += bits.OnesCount64(word)
	}
	k := Kept{Index: t.Updated(t.lo, t.hi, n, make([]int64, 0, n))}
	k.Values = t.gather(k.Index, t.values)
	for _, slot := range t.state.Slots() {
		k.Slots = append(k.Slots, t.gather(k.Index, slot))
	}
	return k
}

// gather copies rows of a slice over the table's elements. It copies neighbours
// together, because most rows of a table that was trained for long have
// neighbours.
func (t *Table[T]) gather(index []int64, from []T) []byte {
	all := make([]T, len(index)*t.width)
	into := all
	for len(index) > 0 {
		run := 1
		for run < len(index) && index[run] == index[0]+int64(run) {
			run++
		}
		at := int(index[0]-t.lo) * t.width
		into = into[copy(into, from[at:at+run*t.width]):]
		index = index[run:]
	}
	return wire.Bytes(all)
}

// Put replaces rows by rows that Keep copied from a table of the same variable
// and rule. If it fails it changes nothing.
func (t *Table[T]) Put(k Kept) error {
	slots := t.state.Slots()
	size := t.MoveSize() / (1 + len(slots))
	if err := k.Check(t.lo, t.hi, size, len(slots)); err != nil {
		return err
	}
	for i, row := range k.Index {
		copy(wire.Bytes(t.row(row)), k.Values[i*size:(i+1)*size])
		at := int(row-t.lo) * t.width
		for j, slot := range slots {
			copy(wire.Bytes(slot[at:at+t.width]), k.Slots[j][i*size:(i+1)*size])
		}
		t.store(row)
	}
	return nil
}
