package sparse

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/plx-run/plx/trainer/wire"
)

// Rows that move from one shard holder to another are encoded as a list of row
// numbers (AppendIndex). The values and the optimiser state of each row
// follow.

// Updated appends to a slice (into) the rows of [from, to) that were ever
// updated or restored, ascending. It appends no more rows than the parameter
// most allows. All other rows still have their initial values and no optimiser
// state.
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

// parts returns the table's values, followed by each slice of its optimiser
// state.
func (t *Table[T]) parts() [][]T { return append([][]T{t.values}, t.state.Slots()...) }

// MoveSize returns the number of bytes of one row together with its optimiser
// state.
func (t *Table[T]) MoveSize() int { return t.rowBytes() * len(t.parts()) }

func (t *Table[T]) rowBytes() int {
	var one [1]T
	return t.width * len(wire.Bytes(one[:]))
}

// Export appends the encoded rows and their optimiser state to b. index must
// be strictly ascending and contain only rows that Updated has returned.
func (t *Table[T]) Export(b []byte, index []int64) []byte {
	b = AppendIndex(b, index)
	parts := t.parts()
	for _, row := range index {
		for _, part := range parts {
			b = append(b, wire.Bytes(t.row(part, row))...)
		}
	}
	return b
}

// Import stores rows that Export encoded from another shard of the same
// variable. b must contain at least one row, and all rows must be in [lo, hi).
// Import returns the number of the last row plus 1. After an error the table
// is unchanged.
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
	parts := t.parts()
	for _, row := range index {
		for _, part := range parts {
			rest = rest[copy(wire.Bytes(t.row(part, row)), rest):]
		}
		t.store(row)
	}
	return index[len(index)-1] + 1, nil
}

// SavedRows contains rows of a table for a checkpoint. Index is strictly ascending.
// Values and each slice in Slots contain these rows one after the other. The
// bytes need no alignment.
type SavedRows struct {
	Index  []int64
	Values []byte
	Slots  [][]byte // optimiser state: one slice for each number that the optimiser keeps per element
}

// parts returns Values, followed by each slice in Slots.
func (k SavedRows) parts() [][]byte { return append([][]byte{k.Values}, k.Slots...) }

// Check returns an error if k contains rows outside of [lo, hi), if a row does
// not have rowBytes bytes, or if k does not have the given number of slots
// (arrays of optimiser state).
func (k SavedRows) Check(lo, hi int64, rowBytes, slots int) error {
	if len(k.Slots) != slots {
		return fmt.Errorf("%d slots of the optimiser, want %d", len(k.Slots), slots)
	}
	for _, b := range k.parts() {
		if len(b)%rowBytes != 0 || len(b)/rowBytes != len(k.Index) {
			return fmt.Errorf("%d bytes for %d rows of %d", len(b), len(k.Index), rowBytes)
		}
	}
	return checkIndex(k.Index, lo, hi)
}

// Cut returns the rows of k that are in [lo, hi), without a copy. Check with
// the same rowBytes must have accepted k.
func (k SavedRows) Cut(lo, hi int64, rowBytes int) SavedRows {
	from, _ := slices.BinarySearch(k.Index, lo)
	to, _ := slices.BinarySearch(k.Index, hi)
	cut := SavedRows{Index: k.Index[from:to], Values: k.Values[from*rowBytes : to*rowBytes]}
	for _, slot := range k.Slots {
		cut.Slots = append(cut.Slots, slot[from*rowBytes:to*rowBytes])
	}
	return cut
}

// Keep copies every row that was ever updated or restored, with its optimiser
// state. All other rows can be drawn again from the seed.
func (t *Table[T]) Keep() SavedRows {
	n := 0
	for _, word := range t.stored {
		n += bits.OnesCount64(word)
	}
	k := SavedRows{Index: t.Updated(t.lo, t.hi, n, make([]int64, 0, n))}
	k.Values = t.gather(k.Index, t.values)
	for _, slot := range t.state.Slots() {
		k.Slots = append(k.Slots, t.gather(k.Index, slot))
	}
	return k
}

// gather copies rows from a slice that has all rows of the table. It copies
// consecutive rows together, because after long training most rows have
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

// Put replaces rows by those that Keep copied from a table with the same
// variable and optimiser. After an error the table is unchanged.
func (t *Table[T]) Put(k SavedRows) error {
	size := t.rowBytes()
	if err := k.Check(t.lo, t.hi, size, len(t.state.Slots())); err != nil {
		return err
	}
	from := k.parts()
	for j, part := range t.parts() {
		for i, row := range k.Index {
			copy(wire.Bytes(t.row(part, row)), from[j][i*size:])
		}
	}
	for _, row := range k.Index {
		t.store(row)
	}
	return nil
}
