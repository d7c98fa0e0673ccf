package sparse

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/wire"
)

var movers = []optimizer.Settings{
	{Rule: optimizer.SGD},
	{Rule: optimizer.Momentum, Momentum: 0.9},
	{Rule: optimizer.Adagrad, Accumulator: 0.1},
	{Rule: optimizer.Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8},
}

// half returns the rows [lo, hi) of a table after some updates.
func half[T wire.Float](t testing.TB, s optimizer.Settings, first Initial, lo, hi int64) *Table[T] {
	t.Helper()
	table, err := NewTable[T]("x", first, s, lo, hi, 3)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// update applies gradients to those rows of index that the table has.
func update[T wire.Float](t testing.TB, table *Table[T], step uint64, index []int64) {
	t.Helper()
	random := rand.New(rand.NewPCG(step, 1))
	g := Rows[T]{Index: index, Values: noise[T](random, 3*len(index)), Width: 3}
	lo, hi := table.lo, table.hi
	if err := table.Apply(optimizer.Step{Number: step, Rate: 0.1, Scale: 1}, g.Cut(lo, hi)); err != nil {
		t.Fatal(err)
	}
}

// Rows that moved to another table must get the same values in later steps as
// rows that did not move.
func TestMovedRowsTrainLikeOriginals(t *testing.T) {
	for _, s := range movers {
		for _, first := range []Initial{{}, {Kind: Uniform, A: -1, B: 1, Seed: 4}} {
			stays := half[float32](t, s, first, 0, 200)
			a, b := half[float32](t, s, first, 0, 90), half[float32](t, s, first, 90, 200)
			index := []int64{0, 1, 5, 63, 64, 65, 88, 89, 90, 127, 128, 191, 192, 199}
			for _, table := range []*Table[float32]{stays, a, b} {
				update(t, table, 0, index)
				update(t, table, 1, index[3:])
			}
			all := half[float32](t, s, first, 0, 200)
			if _, err := all.Import(b.Export(nil, b.Updated(0, 1000, 1000, nil)), 90, 200); err != nil {
				t.Fatal(err)
			}
			for from, rows := int64(0), a.Updated(0, 90, 3, nil); len(rows) > 0; rows = a.Updated(from, 90, 3, nil) {
				next, err := all.Import(a.Export(nil, rows), from, 90)
				if err != nil || next != rows[len(rows)-1]+1 {
					t.Fatalf("%v: %d, %v", rows, next, err)
				}
				from = next
			}
			if got := all.Updated(0, 200, 1000, nil); !slices.Equal(got, index) {
				t.Fatalf("rows %v, want %v", got, index)
			}
			update(t, stays, 2, []int64{0, 2, 64, 199})
			update(t, all, 2, []int64{0, 2, 64, 199})
			x, y := make([]float32, 600), make([]float32, 600)
			if stays.Copy(0, x) != nil || all.Copy(0, y) != nil || !slices.Equal(x, y) {
				t.Errorf("%s: values differ after the move", s.Rule)
			}
			for i, slot := range stays.state.Slots() {
				if !slices.Equal(slot, all.state.Slots()[i]) {
					t.Errorf("%s: slot %d differs after the move", s.Rule, i)
				}
			}
		}
	}
}

func TestUpdatedReturnsStoredRows(t *testing.T) {
	table := half[float64](t, movers[0], Initial{}, 10, 300)
	if got := table.Updated(0, 1000, 9, nil); got != nil {
		t.Errorf("rows %v of a table that nobody updated", got)
	}
	update(t, table, 0, []int64{10, 73, 74, 137, 299})
	for _, c := range []struct {
		from, to int64
		most     int
		want     []int64
	}{
		{0, 1000, 9, []int64{10, 73, 74, 137, 299}},
		{10, 300, 2, []int64{10, 73}},
		{11, 299, 9, []int64{73, 74, 137}},
		{74, 75, 9, []int64{74}},
		{75, 137, 9, nil},
		{299, 300, 9, []int64{299}},
		{300, 300, 9, nil},
		{10, 300, 0, nil},
	} {
		if got := table.Updated(c.from, c.to, c.most, nil); !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestImportRejectsInvalidRows(t *testing.T) {
	from := half[float32](t, movers[1], Initial{}, 0, 50)
	update(t, from, 0, []int64{3, 4, 40})
	good := from.Export(nil, []int64{3, 4})
	for name, c := range map[string]struct {
		b      []byte
		lo, hi int64
		want   string
	}{
		"no rows":       {from.Export(nil, nil), 0, 50, "one at least"},
		"other range":   {good, 4, 50, "outside [4, 50)"},
		"more":          {append(slices.Clone(good), 0), 0, 50, "bytes for 2 rows"},
		"less":          {good[:len(good)-1], 0, 50, "2 rows"},
		"outside":       {good, 0, 51, "not all in [0, 50)"},
		"other slots":   {half[float32](t, movers[0], Initial{}, 0, 50).Export(nil, []int64{3, 4}), 0, 50, "2 rows"},
		"empty payload": {nil, 0, 50, "number of rows"},
	} {
		into := half[float32](t, movers[1], Initial{}, 0, 50)
		_, err := into.Import(c.b, c.lo, c.hi)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if got := into.Updated(0, 50, 50, nil); got != nil {
			t.Errorf("%s: rows %v have changed", name, got)
		}
	}
}

// FuzzImport passes arbitrary bytes to Import as moved rows.
func FuzzImport(f *testing.F) {
	table := half[float32](f, movers[3], Initial{}, 0, 50)
	update(f, table, 0, []int64{0, 7, 49})
	f.Add(table.Export(nil, []int64{0, 7, 49}), uint8(0), uint8(50))
	f.Add([]byte{1, 5}, uint8(3), uint8(9))
	f.Fuzz(func(t *testing.T, b []byte, lo, hi uint8) {
		into := half[float32](t, movers[3], Initial{}, 0, 50)
		next, err := into.Import(b, int64(lo), int64(hi))
		if err != nil {
			return
		}
		rows := into.Updated(0, 50, 50, nil)
		if len(rows) == 0 || rows[0] < int64(lo) || rows[len(rows)-1]+1 != next || next > int64(hi) {
			t.Fatalf("rows %v of [%d, %d), next %d", rows, lo, hi, next)
		}
		if again := into.Export(nil, rows); !bytes.Equal(again, b) {
			t.Fatalf("% x came back as % x", b, again)
		}
	})
}
