package message

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// Rows lists rows of one piece of a sparse variable. A request for rows
// consists of the following numbers. A reply begins with them; they are its
// head:
//
//	uvarint number of pieces, then for each piece
//	uvarint variable, uvarint first row of the piece, list of rows as in package sparse
//
// In a reply, zeros pad the head to a multiple of 8 bytes. The values of the
// rows follow, piece by piece. Zeros pad the values of each piece to a
// multiple of 8 bytes, so that all values are aligned.
type Rows struct {
	layout.Place
	Index []int64 // rows of the piece, in ascending order
	Size  int     // number of bytes of the encoded list; set by DecodeRows
}

// RowRequest requests rows of one sparse variable. Index lists the rows in
// strictly ascending order. The values of the rows are copied to Into, one row
// after the other.
type RowRequest struct {
	Variable int
	Index    []int64
	Into     []byte
}

// Padded returns n rounded up to a multiple of 8.
func Padded(n int) int { return (n + 7) &^ 7 }

// MaxHead returns the largest encoded size, in bytes, of the head of a reply
// for n pieces. The head names the pieces and their rows; the bytes for the
// rows are not counted here.
func MaxHead(n int) int { return binary.MaxVarintLen64*(1+2*n) + 7 }

// AppendCount appends the number of pieces, which is the first number in a
// request for rows and in a reply.
func AppendCount(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)) }

// AppendRows appends the encoded list of rows of one piece.
func AppendRows(b []byte, at layout.Place, index []int64) []byte {
	b = binary.AppendUvarint(b, uint64(at.Variable))
	b = binary.AppendUvarint(b, uint64(at.Offset))
	return sparse.AppendIndex(b, index)
}

var errRows = errors.New("no list of pieces")

// DecodeRows decodes lists of rows. The parameter most is the maximum number
// of pieces, which must all be different. DecodeRows also returns the
// remaining bytes, after the padding. bounds returns the range [lo, hi) of
// rows of a piece; ok is false if the request or reply may not contain that
// piece.
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
			return nil, nil, fmt.Errorf("rows of variable %d from row %d, which this task does not hold, or twice", r.Variable, r.Offset)
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

// number decodes a uvarint. It returns an error if the value exceeds the
// parameter most.
func number(b []byte, most int) (int, []byte, error) {
	x, n := binary.Uvarint(b)
	if n <= 0 || x > uint64(most) {
		return 0, nil, errRows
	}
	return int(x), b[n:], nil
}

// Memory is a reusable buffer for the values of rows. It is aligned for
// numbers of any type.
type Memory struct{ numbers []float64 }

// Bytes returns a slice of n bytes. The next call of Bytes overwrites it.
func (m *Memory) Bytes(n int) []byte {
	if cap(m.numbers) < (n+7)/8 {
		m.numbers = make([]float64, (n+7)/8)
	}
	return wire.Bytes(m.numbers[:(n+7)/8])[:n]
}

// Source provides the values of rows of an embedding table.
type Source interface {
	RowBytes() int
	Read(index []int64, into []byte) error
}

// Share is the part of a reply that concerns one piece of a variable: the
// requested rows of that piece, and the source of their values.
type Share struct {
	Rows
	From Source
}

// Reply builds replies to requests for rows, and reuses its buffers. The zero
// value is ready to use.
type Reply struct {
	head   []byte
	memory Memory
}

// Frame builds a reply with the given rows of several pieces. The next call of
// Frame overwrites the payload.
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
			panic(err) // cannot happen, because DecodeRows has checked the rows
		}
		clear(payload[at+n : at+Padded(n)])
		at += Padded(n)
	}
	return wire.Frame{Header: wire.Header{Kind: kind, Step: step}, Payload: payload}
}

// maxPulled is the largest size in bytes of the rows in a reply, if the
// request has no list of rows but asks for consecutive rows.
const maxPulled = 4 << 20

// RangeRows returns the largest number of rows in a reply, if the request has
// no list of rows but asks for consecutive rows. rowBytes is the size of a row
// in bytes.
func RangeRows(rowBytes int) int { return max(1, maxPulled/rowBytes) }
