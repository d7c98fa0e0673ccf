package sparse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/plx-run/plx/trainer/wire"
)

// On the wire a list of rows is
//
//	uvarint count
//	uvarint first row, then for each further row the number of rows skipped
//
// Rows with values add
//
//	count*width numbers, little-endian, in the order of memory
//
// Every list has exactly one encoding: Decode refuses numbers that are longer
// than necessary.

// AppendIndex appends a list of rows. They must be strictly ascending and not
// negative.
func AppendIndex(b []byte, index []int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(index)))
	next := int64(0)
	for _, row := range index {
		b = binary.AppendUvarint(b, uint64(row-next))
		next = row + 1
	}
	return b
}

// Append appends rows. It writes the same as AppendIndex followed by
// wire.Bytes(r.Values), which a sender can use to send from two places.
func Append[T wire.Float](b []byte, r Rows[T]) []byte {
	return append(AppendIndex(b, r.Index), wire.Bytes(r.Values)...)
}

// DecodeIndex reads a list of rows within [lo, hi) into the memory of into. It
// returns the bytes after the list.
func DecodeIndex(b []byte, lo, hi int64, into []int64) (index []int64, rest []byte, err error) {
	return decodeIndex(b, lo, hi, 1, into)
}

// Decode reads what Append wrote, rows of width elements within [lo, hi), into
// the memory of into. b must hold nothing else.
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
	copy(wire.Bytes(into.Values), rest) // rest may be unaligned, numbers must not
	return into, nil
}

// decodeIndex allocates memory only for as many rows as b can hold, if each
// takes at least least bytes.
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

var errNumber = errors.New("no number, or one longer than need be")

func uvarint(b []byte) (x uint64, rest []byte, err error) {
	x, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, nil, errNumber
	}
	return x, b[n:], nil
}

func resize[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
