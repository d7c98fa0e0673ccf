package exchange

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
)

// A request for rows, and the head of an answer, is
//
//	uvarint number of pieces, then for each
//	uvarint variable, uvarint first row of the piece, list of rows as in package sparse
//
// In an answer zeros follow up to a multiple of 8, and then for each piece the
// values of the rows, padded likewise. So numbers are aligned.

// item is a piece and rows of it.
type item struct {
	layout.Place
	index []int64
	size  int // bytes that it was encoded in
}

func padded(n int) int { return (n + 7) &^ 7 }

// maxItems bounds what so many items take beside their lists of rows.
func maxItems(n int) int { return binary.MaxVarintLen64*(1+2*n) + 7 }

func appendItem(b []byte, at layout.Place, index []int64) []byte {
	b = binary.AppendUvarint(b, uint64(at.Variable))
	b = binary.AppendUvarint(b, uint64(at.Offset))
	return sparse.AppendIndex(b, index)
}

var errItems = errors.New("no list of pieces")

// decodeItems reads at most most items, each of another piece, and returns
// what is behind them and their padding. bounds says which rows a piece has.
func decodeItems(b []byte, most int, bounds func(layout.Place) (lo, hi int64, ok bool)) (items []item, rest []byte, err error) {
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
		var i item
		if i.Variable, b, err = number(b, layout.MaxElements); err == nil {
			i.Offset, b, err = number(b, layout.MaxElements)
		}
		if err != nil {
			return nil, nil, err
		}
		lo, hi, ok := bounds(i.Place)
		if !ok || seen[i.Place] {
			return nil, nil, fmt.Errorf("rows of variable %d from row %d, which are not kept here, or twice", i.Variable, i.Offset)
		}
		seen[i.Place] = true
		if i.index, b, err = sparse.DecodeIndex(b, lo, hi, nil); err != nil {
			return nil, nil, fmt.Errorf("rows of variable %d: %w", i.Variable, err)
		}
		i.size = before - len(b)
		items = append(items, i)
	}
	used := whole - len(b)
	return items, b[min(len(b), padded(used)-used):], nil
}

// number reads a number of at most most.
func number(b []byte, most int) (int, []byte, error) {
	x, n := binary.Uvarint(b)
	if n <= 0 || x > uint64(most) {
		return 0, nil, errItems
	}
	return int(x), b[n:], nil
}
