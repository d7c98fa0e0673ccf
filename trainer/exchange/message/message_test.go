package message

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// someRows returns the range of rows of a piece; there are two pieces of
// variable 5 and one of variable 6.
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

// encode returns an encoded request for rows.
func encode(lists []Rows) []byte {
	b := binary.AppendUvarint(nil, uint64(len(lists)))
	for _, r := range lists {
		b = AppendRows(b, r.Place, r.Index)
	}
	return b
}

// FuzzRows decodes arbitrary bytes as a request, or as the head of a reply.
func FuzzRows(f *testing.F) {
	f.Add(encode([]Rows{
		{Place: layout.Place{Variable: 5, Offset: 20}, Index: []int64{20, 21, 40}}, {Place: layout.Place{Variable: 6}, Index: []int64{3}},
	}))
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3})
	f.Add([]byte{1, 5, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		items, rest, err := DecodeRows(b, 3, someRows)
		if err != nil {
			return
		}
		if len(items) > 3 || len(rest) > len(b) || len(b) > 0 && (len(b)-len(rest))%8 != 0 && len(rest) > 0 {
			t.Fatalf("%d items, %d of %d bytes left", len(items), len(rest), len(b))
		}
		for _, i := range items {
			lo, hi, ok := someRows(i.Place)
			if !ok || len(i.Index) > 0 && (i.Index[0] < lo || i.Index[len(i.Index)-1] >= hi) || !slices.IsSorted(i.Index) {
				t.Fatalf("rows %v of %v", i.Index, i.Place)
			}
		}
		again := encode(items)
		same, _, err := DecodeRows(again, 3, someRows)
		if err != nil || len(same) != len(items) {
			t.Fatalf("% x came back as % x: %v", b, again, err)
		}
		for i := range same {
			if same[i].Place != items[i].Place || !slices.Equal(same[i].Index, items[i].Index) || same[i].Size != len(AppendRows(nil, same[i].Place, same[i].Index)) {
				t.Fatalf("%+v came back as %+v", items[i], same[i])
			}
		}
	})
}

// FuzzPayloads decodes arbitrary bytes as every payload that has a fixed
// format.
func FuzzPayloads(f *testing.F) {
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<63))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= OutcomeSize {
			end, err := DecodeOutcome(b)
			if again := EncodeOutcome(nil, end); err == nil && string(again) != string(b[:OutcomeSize]) {
				t.Fatalf("% x came back as % x", b[:OutcomeSize], again)
			}
		}
		if len(b) >= 8 && len(b)%4 == 0 {
			if again := EncodeBeginning(nil, DecodeBeginning(b, nil)); string(again) != string(b) {
				t.Fatalf("% x came back as % x", b, again)
			}
		}
		if s, err := policy.ParseSync(string(b)); err == nil && s.String() != string(b) {
			t.Fatalf("%q came back as %s", b, s)
		}
	})
}
