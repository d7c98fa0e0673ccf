package message

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// Rows lists rows of one piece of a sparse variable. A request for rows, and
// the head of a reply, consists of
//
//	uvarint number of pieces, then for each
//	uvarint variable, uvarint first row of the piece, list of rows as in package sparse
//
// In a reply, zeros pad the head to a multiple of 8 bytes. The values of the
// rows of each piece follow, padded in the same way. So all numbers are
// aligned.
type Rows struct {
	layout.Place
	Index []int64 // ascending rows
	Size  int     // number of encoded bytes; set by DecodeRows
}

// RowRequest is a request for rows of one sparse variable. Index is strictly
// ascending. Into gets the values of the rows, one row after the other.
type RowRequest struct {
	Variable int
	Index    []int64
	Into     []byte
}

// Padded returns n rounded up to a multiple of 8.
func Padded(n int) int { return (n + 7) &^ 7 }

// MaxHead bounds the encoded size of n Rows in bytes, without their lists of
// rows.
func MaxHead(n int) int { return binary.MaxVarintLen64*(1+2*n) + 7 }

// AppendCount appends the number of pieces, with which a request or a reply
// begins.
func AppendCount(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)) }

// AppendRows appends the list of rows of one piece.
func AppendRows(b []byte, at layout.Place, index []int64) []byte {
	b = binary.AppendUvarint(b, uint64(at.Variable))
	b = binary.AppendUvarint(b, uint64(at.Offset))
	return sparse.AppendIndex(b, index)
}

var errRows = errors.New("no list of pieces")

// DecodeRows decodes the lists of rows of up to most pieces, all different. It
// returns them, and the bytes after their padding. bounds returns the rows [lo,
// hi) of a piece; ok is false if the sender must not name that piece.
func DecodeRows(b []byte, most int, bounds func(layout.Place) (lo, hi int64, ok bool)) (all []Rows, rest []byte, err error) {
	whole := len(b)
	if whole == 0 {
		return nil, nil, nil
	}
	n, b, err := number(b, most)
	if err != nil {
		return nil, nil, err
	}
	seen := make(map[layout.Place]bool, n)
	for range n {
		before := len(b)
		var r Rows
		if r.Variable, b, err = number(b, layout.MaxElements); err == nil {
			r.Offset, b, err = number(b, layout.MaxElements)
		}
		if err != nil {
			return nil, nil, err
		}
		lo, hi, ok := bounds(r.Place)
		if !ok || seen[r.Place] {
			return nil, nil, fmt.Errorf("rows of variable %d from row %d, which are not kept here, or twice", r.Variable, r.Offset)
		}
		seen[r.Place] = true
		if r.Index, b, err = sparse.DecodeIndex(b, lo, hi, nil); err != nil {
			return nil, nil, fmt.Errorf("rows of variable %d: %w", r.Variable, err)
		}
		r.Size = before - len(b)
		all = append(all, r)
	}
	used := whole - len(b)
	return all, b[min(len(b), Padded(used)-used):], nil
}

// number decodes a uvarint that must not exceed most.
func number(b []byte, most int) (int, []byte, error) {
	x, n := binary.Uvarint(b)
	if n <= 0 || x > uint64(most) {
		return 0, nil, errRows
	}
	return int(x), b[n:], nil
}

// Memory is reusable memory for the values of rows, aligned for any number.
type Memory struct{ numbers []float64 }

// Bytes returns n bytes, which are valid until the next call.
func (m *Memory) Bytes(n int) []byte {
	if cap(m.numbers) < (n+7)/8 {
		m.numbers = make([]float64, (n+7)/8)
	}
	return wire.Bytes(m.numbers[:(n+7)/8])[:n]
}

// Source provides the values of rows.
type Source interface {
	RowBytes() int
	Read(index []int64, into []byte) error
}

// Share lists the rows of one piece in a reply, and the source of their values.
type Share struct {
	Rows
	From Source
}

// Reply builds replies to requests for rows. The zero value is ready to use.
type Reply struct {
	head   []byte
	memory Memory
}

// Frame builds a reply. Its payload is valid until the next call.
func (r *Reply) Frame(kind wire.Kind, step uint64, shares []Share) wire.Frame {
	r.head = AppendCount(r.head[:0], len(shares))
	size := 0
	for _, s := range shares {
		r.head = AppendRows(r.head, s.Place, s.Index)
		size += Padded(len(s.Index) * s.From.RowBytes())
	}
	at := Padded(len(r.head))
	payload := r.memory.Bytes(at + size)
	clear(payload[copy(payload, r.head):at])
	for _, s := range shares {
		n := len(s.Index) * s.From.RowBytes()
		if err := s.From.Read(s.Index, payload[at:at+n]); err != nil {
			panic(err) // the list was checked
		}
		clear(payload[at+n : at+Padded(n)])
		at += Padded(n)
	}
	return wire.Frame{Header: wire.Header{Kind: kind, Step: step}, Payload: payload}
}

// maxPulled bounds the size in bytes of the rows that one frame can request
// without a list.
const maxPulled = 4 << 20

// RangeRows returns the largest number of rows that one frame can request
// without a list.
func RangeRows(rowBytes int) int { return max(1, maxPulled/rowBytes) }
