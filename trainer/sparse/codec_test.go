package sparse

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestCodecRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	var into Rows[float32]
	for range 300 {
		lo := random.Int64N(1 << random.IntN(62))
		width := 1 + random.IntN(5)
		r := someRows[float32](random, lo, lo+100, width, random.Float64()*random.Float64())
		b := Append([]byte("head"), r)[4:]
		var err error
		if into, err = Decode(b, lo, lo+100, width, into); err != nil {
			t.Fatal(err)
		}
		same(t, into, r)
		index, rest, err := DecodeIndex(append(AppendIndex(nil, r.Index), "tail"...), lo, lo+100, nil)
		if err != nil || !slices.Equal(index, r.Index) || string(rest) != "tail" {
			t.Fatalf("index %v, then %q: %v", index, rest, err)
		}
	}
}

// An encoded list must have exactly these bytes.
func TestRowsFormat(t *testing.T) {
	r := Rows[float32]{[]int64{2, 3, 203}, []float32{1, 2, 3}, 1}
	want := []byte{3, 2, 0, 0xc7, 1, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40}
	if got := Append(nil, r); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

func TestDecodeRejectsInvalidRows(t *testing.T) {
	good := Append(nil, Rows[float32]{[]int64{10, 12, 19}, make([]float32, 6), 2})
	huge := binary.AppendUvarint(nil, math.MaxUint64)
	for _, c := range []struct {
		name   string
		b      []byte
		lo, hi int64
		width  int
		want   string
	}{
		{"empty", nil, 10, 20, 2, "number of rows"},
		{"too many rows", slices.Concat([]byte{11}, make([]byte, 200)), 10, 20, 2, "11 rows from [10, 20)"},
		{"more rows than bytes", []byte{9, 10, 0, 0}, 10, 20, 2, "9 rows from [10, 20) in 3 bytes"},
		{"absurd count", huge, 10, 20, 2, "rows from"},
		{"below", good, 11, 20, 2, "outside [11, 20)"},
		{"above", good, 10, 19, 2, "outside [10, 19)"},
		{"first far away", slices.Concat([]byte{1}, huge, make([]byte, 8)), 10, 20, 2, "outside"},
		{"next far away", slices.Concat([]byte{2, 10}, huge, make([]byte, 16)), 10, 20, 2, "outside"},
		{"padded number", slices.Concat([]byte{0x81, 0, 10}, make([]byte, 8)), 10, 20, 2, "invalid varint"},
		{"cut off number", slices.Concat([]byte{1}, bytes.Repeat([]byte{0xff}, 9)), 10, 20, 2, "invalid varint"},
		{"one byte less", good[:len(good)-1], 10, 20, 2, "3 rows from [10, 20) in 26 bytes"},
		{"a value less", slices.Concat([]byte{1, 0x8a, 1}, make([]byte, 7)), 10, 200, 2, "7 bytes of values for 1 rows of 8"},
		{"a byte more", append(slices.Clone(good), 0), 10, 20, 2, "25 bytes of values"},
		{"other width", good, 10, 20, 1, "24 bytes of values for 3 rows of 4"},
		{"no width", good, 10, 20, 0, "width 0"},
		{"negative width", good, 10, 20, -1, "width -1"},
		{"huge width", good, 10, 20, math.MaxInt, "rows of width"},
		{"no range", good, 20, 10, 2, "rows from"},
		{"negative range", []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, -20, -10, 2, "outside [-20, -10)"},
	} {
		r, err := Decode(c.b, c.lo, c.hi, c.width, Rows[float32]{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v and %v, want %q", c.name, r, err, c.want)
		}
	}
	if _, err := Decode(good, 10, 20, 2, Rows[float32]{}); err != nil {
		t.Error(err)
	}
}

// Decode must not allocate memory for rows that are announced but not sent.
func TestDecodeDoesNotAllocateForMissingData(t *testing.T) {
	b := binary.AppendUvarint(nil, 1<<40)
	b = append(b, make([]byte, 1000)...)
	if n := testing.AllocsPerRun(1, func() {
		if r, err := Decode(b, 0, 1<<50, 64, Rows[float64]{}); err == nil || cap(r.Index)+cap(r.Values) > 0 {
			t.Errorf("decoded %d rows", len(r.Index))
		}
	}); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Append(nil, Rows[float32]{[]int64{10, 12, 19}, make([]float32, 6), 2}), int64(10), int64(20), 2)
	f.Add([]byte{0}, int64(0), int64(0), 1)
	f.Add(binary.AppendUvarint(nil, math.MaxUint64), int64(math.MinInt64), int64(math.MaxInt64), 3)
	f.Fuzz(func(t *testing.T, b []byte, lo, hi int64, width int) {
		index, rest, err := DecodeIndex(b, lo, hi, nil)
		if err == nil {
			if err := checkIndex(index, lo, hi); err != nil {
				t.Fatal(err)
			}
			if again := append(AppendIndex(nil, index), rest...); !bytes.Equal(again, b) {
				t.Fatalf("% x encodes as % x", b, again)
			}
		}
		r, err := Decode(b, lo, hi, width, Rows[float32]{})
		if err != nil {
			return
		}
		if err := r.Check(lo, hi, width); err != nil {
			t.Fatal(err)
		}
		if again := Append(nil, r); !bytes.Equal(again, b) {
			t.Fatalf("% x encodes as % x", b, again)
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(int64(0), []byte{0, 1, 5}, uint64(1), uint8(2))
	f.Add(int64(1)<<40, []byte{255, 255}, uint64(2), uint8(0))
	f.Fuzz(func(t *testing.T, first int64, skips []byte, seed uint64, narrow uint8) {
		first &= 1<<61 - 1
		r := Rows[float64]{Width: int(narrow%8) + 1}
		row := first
		for i, skip := range skips[:min(len(skips), 500)] {
			row += int64(skip) << (i % 40)
			r.Index = append(r.Index, row)
			row++
			if row > 1<<61 {
				break
			}
		}
		r.Values = noise[float64](rand.New(rand.NewPCG(seed, 0)), len(r.Index)*r.Width)
		got, err := Decode(Append(nil, r), first, row, r.Width, Rows[float64]{})
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, r)
	})
}
