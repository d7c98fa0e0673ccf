package message

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// Rows is a piece of a sparse variable and rows of it. A request for rows, and
// the head of a reply, is
//
//	uvarint number of pieces, then for each
//	uvarint variable, uvarint first row of the piece, list of rows as in package sparse
//
// In a reply zeros follow up to a multiple of 8, and then for each piece the
// values of the rows, also padded with zeros. So numbers are aligned.
type Rows struct {
	layout.Place
	Index []int64
	Size  int // bytes in which DecodeRows found them
}

// Wanted are rows of one sparse variable: Index is strictly ascending, Into
// gets the rows one after the other.
type Wanted struct {
	Variable int
	Index    []int64
	Into     []byte
}

// Padded is the size of n bytes with their padding.
func Padded(n int) int { return (n + 7) &^ 7 }

// MaxHead bounds what so many Rows take in addition to their lists of rows.
func MaxHead(n int) int { return binary.MaxVarintLen64*(1+2*n) + 7 }

// AppendCount begins a request for rows of n pieces.
func AppendCount(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)) }

// AppendRows appends rows of one piece.
func AppendRows(b []byte, at layout.Place, index []int64) []byte {
	b = binary.AppendUvarint(b, uint64(at.Variable))
	b = binary.AppendUvarint(b, uint64(at.Offset))
	return sparse.AppendIndex(b, index)
}

var errRows = errors.New("no list of pieces")

// DecodeRows reads rows of at most most pieces, each of another piece, and
// returns what follows them and their padding. bounds returns which rows a
// piece has.
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

// number reads a number of at most most.
func number(b []byte, most int) (int, []byte, error) {
	x, n := binary.Uvarint(b)
	if n <= 0 || x > uint64(most) {
		return 0, nil, errRows
	}
	return int(x), b[n:], nil
}

// Memory is memory for the values of rows, aligned for any number.
type Memory struct{ numbers []float64 }

// Bytes returns n bytes, which are good until the next call.
func (m *Memory) Bytes(n int) []byte {
	if cap(m.numbers) < (n+7)/8 {
		m.numbers = make([]float64, (n+7)/8)
	}
	return wire.Bytes(m.numbers[:(n+7)/8])[:n]
}

// Source is where the values of rows are read.
type Source interface {
	RowBytes() int
	Read(index []int64, into []byte) error
}

// Share is the part of a reply that one piece has.
type Share struct {
	Rows
	From Source
}

// Reply makes replies to requests for rows. The zero value is ready to use.
type Reply struct {
	head   []byte
	memory Memory
}

// Frame makes a reply, whose payload is good until the next one.
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

// maxPulled bounds the bytes of whole rows that one frame requests.
const maxPulled = 4 << 20

// RangeRows is how many whole rows one frame requests, if the piece has as many.
func RangeRows(rowBytes int) int { return max(1, maxPulled/rowBytes) }
