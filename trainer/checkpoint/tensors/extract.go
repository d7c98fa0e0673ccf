package tensors

import (
	"context"
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/safetensors"
)

// portionSize is about how many bytes of values are read and put at once.
const portionSize = 4 << 20

// ReadPart puts the elements, or rows, [lo, hi) of a part of a variable: what
// file holds of them. variable is the index of v in the declaration.
func ReadPart(ctx context.Context, file *safetensors.File, part checkpoint.Part, v layout.Variable, variable, lo, hi int, into transition.Restoring) error {
	e := extract{file: file, part: part, unit: v.Dtype.Size(), portion: portionSize}
	if part.Rows >= 0 {
		e.unit *= width(v)
	}
	if err := e.check(); err != nil {
		return err
	}
	return e.put(ctx, variable, lo, hi, into)
}

// extract reads portions of a part.
type extract struct {
	file    *safetensors.File
	part    checkpoint.Part
	unit    int // bytes of an element, or of a row
	portion int // bytes of values that are read at once, at least one unit
}

// check compares the file with what the manifest says about it.
func (e extract) check() error {
	stored := e.part.Count
	if e.part.Rows >= 0 {
		stored = e.part.Rows
		if err := e.sized(rowsOf(e.part.Tensor), 8*int64(stored)); err != nil {
			return err
		}
	}
	want := int64(stored) * int64(e.unit)
	if err := e.sized(e.part.Tensor, want); err != nil {
		return err
	}
	for i := range e.part.Slots {
		if err := e.sized(slotOf(e.part.Tensor, i), want); err != nil {
			return err
		}
	}
	return nil
}

func (e extract) sized(tensor string, want int64) error {
	if info, ok := e.file.Tensor(tensor); !ok || info.Size != want {
		return fmt.Errorf("it has %d bytes of tensor %q, the manifest says %d", info.Size, tensor, want)
	}
	return nil
}

// put puts the units [lo, hi) of the part, portion by portion.
func (e extract) put(ctx context.Context, variable, lo, hi int, into transition.Restoring) error {
	next := 0
	for at := lo; at < hi; at = next {
		var k aggregate.Kept
		var err error
		if e.part.Rows >= 0 {
			k, next, err = e.rows(at, hi)
		} else {
			k, next, err = e.elements(at, hi)
		}
		if err != nil {
			return err
		}
		k.Variable, k.Offset, k.Count, k.Updates = variable, at, next-at, e.part.Updates
		if err := into.Put(k); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// elements reads a portion of a dense part from element at on, and returns where
// the next portion begins.
func (e extract) elements(at, hi int) (aggregate.Kept, int, error) {
	n := min(hi-at, max(1, e.portion/e.unit))
	k, err := e.values(at-e.part.Offset, n)
	return k, at + n, err
}

// rows reads a portion of a sparse part: those rows of [at, hi) that are
// stored. It returns where the next portion begins.
func (e extract) rows(at, hi int) (k aggregate.Kept, next int, err error) {
	first, err := e.search(at)
	if err != nil {
		return k, 0, err
	}
	n := min(e.part.Rows-first, max(1, e.portion/e.unit))
	index := make([]byte, 8*n)
	if err := e.file.ReadAt(rowsOf(e.part.Tensor), index, 8*int64(first)); err != nil {
		return k, 0, err
	}
	rows, next := make([]int64, 0, n), hi
	for i := range n {
		row := int64(binary.LittleEndian.Uint64(index[8*i:]))
		if row >= int64(hi) {
			break
		}
		rows = append(rows, row)
	}
	if len(rows) == n && first+n < e.part.Rows { // others may follow
		if next = int(rows[n-1]) + 1; next <= at {
			return k, 0, fmt.Errorf("rows that are not in order: %d follows %d", next-1, at)
		}
	}
	k, err = e.values(first, len(rows))
	k.Rows = rows
	return k, next, err
}

// search returns how many stored rows have a lower number than row.
func (e extract) search(row int) (int, error) {
	var failed error
	i := sort.Search(e.part.Rows, func(i int) bool {
		var b [8]byte
		if failed == nil {
			failed = e.file.ReadAt(rowsOf(e.part.Tensor), b[:], 8*int64(i))
		}
		return int64(binary.LittleEndian.Uint64(b[:])) >= int64(row)
	})
	return i, failed
}

// values reads n stored units from the first on, with the optimiser's slots.
func (e extract) values(first, n int) (k aggregate.Kept, err error) {
	k.Values, err = e.bytes(e.part.Tensor, first, n)
	for i := range e.part.Slots {
		if err != nil {
			return k, err
		}
		var slot []byte
		slot, err = e.bytes(slotOf(e.part.Tensor, i), first, n)
		k.Slots = append(k.Slots, slot)
	}
	return k, err
}

func (e extract) bytes(tensor string, first, n int) ([]byte, error) {
	b := make([]byte, n*e.unit)
	return b, e.file.ReadAt(tensor, b, int64(first)*int64(e.unit))
}
