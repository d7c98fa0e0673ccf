package sparse

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/wire"
)

// Rows that were saved and restored into other tables must get the same values
// in later steps as the original rows.
func TestRestoredRowsTrainLikeOriginals(t *testing.T) {
	for _, s := range movers {
		t.Run(string(s.Rule), func(t *testing.T) {
			checkKept[float32](t, s)
			checkKept[float64](t, s)
		})
	}
}

func checkKept[T wire.Float](t *testing.T, s optimizer.Settings) {
	t.Helper()
	first := Initial{Kind: Uniform, A: -1, B: 1, Seed: 4}
	index := []int64{10, 11, 12, 63, 64, 65, 88, 89, 90, 127, 128, 191, 192, 209}
	stays := half[T](t, s, first, 10, 210)
	update(t, stays, 0, index)
	update(t, stays, 1, index[3:])
	kept := stays.Keep()
	if !slices.Equal(kept.Index, index) {
		t.Fatalf("kept %v, want %v", kept.Index, index)
	}
	before := append([]byte(nil), kept.Values...)
	size := 3 * len(wire.Bytes(make([]T, 1)))
	tables := []*Table[T]{half[T](t, s, first, 0, 64), half[T](t, s, first, 64, 128), half[T](t, s, first, 128, 300)}
	for _, table := range tables {
		lo, hi := table.lo, table.hi
		cut := kept.Cut(lo, hi, size)
		odd := append(make([]byte, 1), cut.Values...) // the bytes may be unaligned
		cut.Values = odd[1:]
		if err := table.Put(cut); err != nil {
			t.Fatal(err)
		}
		update(t, table, 2, index[:9])
	}
	update(t, stays, 2, index[:9])
	if !bytes.Equal(kept.Values, before) {
		t.Error("what was kept has changed")
	}
	var again SavedRows
	for _, table := range tables {
		part := table.Keep()
		again.Index, again.Values = append(again.Index, part.Index...), append(again.Values, part.Values...)
		again.Slots = append(again.Slots, part.Slots...)
	}
	want := stays.Keep()
	if !slices.Equal(again.Index, want.Index) || !bytes.Equal(again.Values, want.Values) {
		t.Error("values differ")
	}
	for i, slot := range want.Slots {
		var all []byte
		for n := range tables {
			all = append(all, again.Slots[n*len(want.Slots)+i]...)
		}
		if !bytes.Equal(all, slot) {
			t.Errorf("slot %d differs", i)
		}
	}
}

func TestPutRejectsInvalidRows(t *testing.T) {
	good := func() SavedRows {
		return SavedRows{Index: []int64{3, 9}, Values: make([]byte, 24), Slots: [][]byte{make([]byte, 24)}}
	}
	for want, change := range map[string]func(k *SavedRows){
		"0 slots of the optimiser, want 1": func(k *SavedRows) { k.Slots = nil },
		"23 bytes for 2 rows of 12":        func(k *SavedRows) { k.Values = k.Values[1:] },
		"36 bytes for 2 rows of 12":        func(k *SavedRows) { k.Slots[0] = make([]byte, 36) },
		"row 10 is outside [2, 10)":        func(k *SavedRows) { k.Index[1] = 10 },
		"row 3 after row 3":                func(k *SavedRows) { k.Index[1] = 3 },
	} {
		table := half[float32](t, optimizer.Settings{Rule: optimizer.Momentum}, Initial{}, 2, 10)
		k := good()
		change(&k)
		if err := table.Put(k); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if rows := table.Keep().Index; len(rows) > 0 {
			t.Errorf("%s: it has %v", want, rows)
		}
		if err := table.Put(good()); err != nil {
			t.Error(err)
		}
	}
}

// Keep must copy consecutive rows correctly, wherever such a run begins and
// ends.
func TestKeepCopiesConsecutiveRows(t *testing.T) {
	for seed := range int64(20) {
		table := half[float32](t, optimizer.Settings{Rule: optimizer.SGD}, Initial{}, 0, 130)
		var index []int64
		for row := range int64(130) {
			if (row*row+seed)%7 > seed%6 {
				index = append(index, row)
				fill(table, row, []float32{float32(row), 1, 2})
			}
		}
		kept := table.Keep()
		want := make([]float32, 3*len(index))
		if err := table.Read(index, want); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(kept.Index, index) || !bytes.Equal(kept.Values, wire.Bytes(want)) {
			t.Error(fmt.Sprint("seed ", seed, ": kept ", kept.Index))
		}
	}
}
