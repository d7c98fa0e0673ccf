package client

import (
	"bytes"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// asker returns requests that wait for a reply with some rows of variables 5
// and 6.
func asker() (*requests, *demand, []byte) {
	d := mixed(2, 2)
	has := &holding{where: map[layout.Place]int{}, pieces: []layout.Piece{{Variable: 5, Count: 20}, {Variable: 5, Offset: 20, Count: 21}, {Variable: 6, Count: 9}}}
	for i, p := range has.pieces {
		has.where[layout.Place{Variable: p.Variable, Offset: p.Offset}] = i
	}
	r := &requests{holder: &holder{d: &d, volumes: make([]volume, 8)}}
	r.holds.Store(has)
	into := make([]byte, 4*12+2*8)
	wanted := []message.RowRequest{
		{Variable: 5, Index: []int64{1, 3, 20, 40}, Into: into[:48]}, {Variable: 6, Index: []int64{0, 8}, Into: into[48:]},
	}
	return r, &demand{asking: &asking{}, portions: portions(&d, has.pieces, wanted)}, into
}

// good returns a valid reply to the request of asker. Each row begins with its
// number.
func good() []byte {
	var reply message.Reply
	rows := func(variable, offset int, index ...int64) message.Share {
		size := map[int]int{5: 12, 6: 8}[variable]
		return message.Share{Rows: message.Rows{Place: layout.Place{Variable: variable, Offset: offset}, Index: index}, From: numbered(size)}
	}
	return reply.Frame(wire.FinalReply, 0, []message.Share{rows(5, 0, 1, 3), rows(5, 20, 20, 40), rows(6, 0, 0, 8)}).Payload
}

// numbered is a table in which each row has its number, followed by zeros.
type numbered int

func (n numbered) RowBytes() int { return int(n) }

func (n numbered) Read(index []int64, into []byte) error {
	clear(into)
	for i, row := range index {
		into[i*int(n)] = byte(row)
	}
	return nil
}

// A reply must contain exactly the requested rows, in order; any other reply
// is refused.
func TestInvalidReplyIsRefused(t *testing.T) {
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
		return append(append(head, make([]byte, message.Padded(len(head))-len(head))...), make([]byte, values)...)
	}
	for want, body := range map[string][]byte{
		"row 4 of variable 5, which was not requested":                 answer(16, 1, 5, 0, 1, 4),
		"8 bytes of values for 1 rows of 12":                           answer(8, 1, 5, 0, 1, 3),
		"8 bytes after the rows":                                       answer(24, 1, 5, 0, 1, 3),
		"variable 5 from row 0, which was not requested":               answer(32, 2, 6, 0, 1, 8, 5, 0, 1, 3), // another order
		"rows of variable 7 from row 0, which this task does not hold": answer(16, 1, 7, 0, 1, 3),
		"no list of pieces":                                            answer(0, 4),
	} {
		l, s, _ := asker()
		if err := l.take(s, body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// FuzzReply decodes arbitrary bytes as a reply.
func FuzzReply(f *testing.F) {
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
