package exchange

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// someRows has two pieces of one table and one of another.
func someRows(at layout.Place) (lo, hi int64, ok bool) {
	switch at {
	case layout.Place{Variable: 5, Offset: 0}:
		return 0, 20, true
	case layout.Place{Variable: 5, Offset: 20}:
		return 20, 41, true
	case layout.Place{Variable: 6, Offset: 0}:
		return 0, 9, true
	}
	return 0, 0, false
}

// FuzzItems decodes any bytes as a request or the head of an answer.
func FuzzItems(f *testing.F) {
	body, _ := encodeWant([]portion{
		{Piece: layout.Piece{Variable: 5, Offset: 20}, index: []int64{20, 21, 40}}, {Piece: layout.Piece{Variable: 6}, index: []int64{3}},
	})
	f.Add(body)
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3})
	f.Add([]byte{1, 5, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		items, rest, err := decodeItems(b, 3, someRows)
		if err != nil {
			return
		}
		if len(items) > 3 || len(rest) > len(b) || len(b) > 0 && (len(b)-len(rest))%8 != 0 && len(rest) > 0 {
			t.Fatalf("%d items, %d of %d bytes left", len(items), len(rest), len(b))
		}
		var portions []portion
		for _, i := range items {
			lo, hi, ok := someRows(i.Place)
			if !ok || len(i.index) > 0 && (i.index[0] < lo || i.index[len(i.index)-1] >= hi) || !slices.IsSorted(i.index) {
				t.Fatalf("rows %v of %v", i.index, i.Place)
			}
			portions = append(portions, portion{Piece: layout.Piece{Variable: i.Variable, Offset: i.Offset}, index: i.index})
		}
		again, sizes := encodeWant(portions)
		same, _, err := decodeItems(again, 3, someRows)
		if err != nil || len(same) != len(items) {
			t.Fatalf("% x came back as % x: %v", b, again, err)
		}
		for i := range same {
			if same[i].Place != items[i].Place || !slices.Equal(same[i].index, items[i].index) || same[i].size != sizes[i] {
				t.Fatalf("%+v came back as %+v of %d bytes", items[i], same[i], sizes[i])
			}
		}
	})
}

// asker is a link that asked for some rows of variables 5 and 6.
func asker() (*link, *demand, []byte) {
	d := mixed(2, 2)
	c := &Client{d: &d}
	has := &holding{where: map[layout.Place]int{}, pieces: []layout.Piece{{Variable: 5, Count: 20}, {Variable: 5, Offset: 20, Count: 21}, {Variable: 6, Count: 9}}}
	for i, p := range has.pieces {
		has.where[layout.Place{Variable: p.Variable, Offset: p.Offset}] = i
	}
	l := &link{client: c, volumes: make([]volume, 8)}
	l.holds.Store(has)
	into := make([]byte, 4*12+2*8)
	wanted := []Wanted{{5, []int64{1, 3, 20, 40}, into[:48]}, {6, []int64{0, 8}, into[48:]}}
	return l, &demand{asking: &asking{}, portions: c.portions(has.pieces, wanted)}, into
}

// good is an answer to asker with rows that begin with their numbers.
func good() []byte {
	var a answer
	rows := func(variable, offset int, index ...int64) owed {
		size := map[int]int{5: 12, 6: 8}[variable]
		return owed{item: item{Place: layout.Place{Variable: variable, Offset: offset}, index: index}, table: numbered(size)}
	}
	return a.frame(wire.Final, 0, []owed{rows(5, 0, 1, 3), rows(5, 20, 20, 40), rows(6, 0, 0, 8)}).Payload
}

// numbered is a table whose rows are their numbers and zeros.
type numbered int

func (n numbered) RowBytes() int { return int(n) }

func (n numbered) Read(index []int64, into []byte) error {
	clear(into)
	for i, row := range index {
		into[i*int(n)] = byte(row)
	}
	return nil
}

// An answer is what was asked for, in its place, or it is refused.
func TestAnswersAreChecked(t *testing.T) {
	l, s, into := asker()
	if err := l.take(s, good()); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, len(into))
	for i, row := range []byte{1, 3, 20, 40} {
		want[12*i] = row
	}
	want[56] = 8
	if !bytes.Equal(into, want) {
		t.Errorf("got % x", into)
	}
	for _, p := range s.portions {
		if p.left > 0 {
			t.Errorf("%d rows are missing: %+v", p.left, p)
		}
	}
	answer := func(values int, head ...byte) []byte {
		return append(append(head, make([]byte, padded(len(head))-len(head))...), make([]byte, values)...)
	}
	for want, body := range map[string][]byte{
		"row 4 of variable 5, which is not asked for":            answer(16, 1, 5, 0, 1, 4),
		"8 bytes of values for 1 rows of 12":                     answer(8, 1, 5, 0, 1, 3),
		"8 bytes after the rows":                                 answer(24, 1, 5, 0, 1, 3),
		"variable 5 from row 0, which is not asked for":          answer(32, 2, 6, 0, 1, 8, 5, 0, 1, 3), // another order
		"rows of variable 7 from row 0, which are not kept here": answer(16, 1, 7, 0, 1, 3),
		"no list of pieces":                                      answer(0, 4),
	} {
		l, s, _ := asker()
		if err := l.take(s, body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// FuzzAnswer takes any bytes for an answer.
func FuzzAnswer(f *testing.F) {
	f.Add(good())
	f.Add([]byte{1, 5, 0, 1, 3, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, s, _ := asker()
		left := 0
		if err := l.take(s, b); err != nil {
			return
		}
		for _, p := range s.portions {
			for i := range p.came {
				if !p.came[i] {
					left++
				}
			}
			left -= p.left
		}
		if left != 0 {
			t.Fatalf("%d rows are counted wrong", left)
		}
	})
}
