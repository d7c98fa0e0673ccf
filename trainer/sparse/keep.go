package sparse

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/plx-run/plx/trainer/wire"
)

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
