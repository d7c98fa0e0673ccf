package aggregate

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
)

// halves returns a declaration of two variables and checkpoint parts with the
// second half of each: of variable 0, which is dense, and of variable 1, a
// sparse table.
func halves() (d layout.Declaration, dense, table SavedPiece) {
	d = layout.Declaration{Optimizer: optimizer.Settings{Rule: optimizer.Momentum}, Variables: []layout.Variable{
		{Name: "w", Dtype: layout.Float32, Shape: []int{10}},
		{Name: "t", Dtype: layout.Float32, Shape: []int{10, 2}, Sparse: &layout.Sparse{}},
	}}
	dense = SavedPiece{Variable: 0, Offset: 5, Count: 5, Updates: 3, Values: make([]byte, 20), Slots: [][]byte{make([]byte, 20)}}
	table = SavedPiece{Variable: 1, Offset: 5, Count: 5, Updates: 3, Rows: []int64{6, 9}, Values: make([]byte, 16), Slots: [][]byte{make([]byte, 16)}}
	return d, dense, table
}

func TestRestoreRejectsInvalidParts(t *testing.T) {
	for name, c := range map[string]struct {
		variable int
		change   func(k *SavedPiece)
		want     string
	}{
		"good":            {0, func(*SavedPiece) {}, ""},
		"good rows":       {1, func(*SavedPiece) {}, ""},
		"no rows":         {1, func(k *SavedPiece) { *k = SavedPiece{Variable: 1, Count: 10, Slots: [][]byte{nil}} }, ""},
		"other variable":  {0, func(k *SavedPiece) { k.Variable = 1 }, "a part of variable 1, want one of 0"},
		"before it":       {0, func(k *SavedPiece) { k.Offset = -1 }, "no part of 5 from -1 on"},
		"behind it":       {0, func(k *SavedPiece) { k.Offset = 6 }, "no part of 5 from 6 on"},
		"far behind it":   {0, func(k *SavedPiece) { k.Offset = 1 << 62; k.Count = 1 << 62 }, "no part"},
		"nothing":         {0, func(k *SavedPiece) { k.Count = 0 }, "no part of 0"},
		"rows of dense":   {0, func(k *SavedPiece) { k.Rows = []int64{} }, "rows of a dense variable"},
		"short":           {0, func(k *SavedPiece) { k.Values = k.Values[1:] }, "19 bytes for"},
		"other type":      {0, func(k *SavedPiece) { k.Values = make([]byte, 40) }, "40 bytes for"},
		"no slots":        {0, func(k *SavedPiece) { k.Slots = nil }, "0 slots of the optimiser, want 1"},
		"two slots":       {1, func(k *SavedPiece) { k.Slots = append(k.Slots, k.Slots[0]) }, "2 slots of the optimiser, want 1"},
		"short slot":      {0, func(k *SavedPiece) { k.Slots = [][]byte{nil} }, "0 bytes for"},
		"row before":      {1, func(k *SavedPiece) { k.Rows[0] = 4 }, "row 4 is outside [5, 10)"},
		"row behind":      {1, func(k *SavedPiece) { k.Rows[1] = 10 }, "row 10 is outside [5, 10)"},
		"rows descending": {1, func(k *SavedPiece) { k.Rows[0] = 9 }, "row 9 after row 9"},
		"values of more":  {1, func(k *SavedPiece) { k.Rows = k.Rows[:1] }, "16 bytes for 1 rows of 8"},
	} {
		d, dense, table := halves()
		k := []SavedPiece{dense, table}[c.variable]
		c.change(&k)
		if err := k.Check(&d, c.variable); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A shard can be restored from parts in any order; the highest number of
// updates of all parts is used. A rejected part leaves its range missing.
// After Close, Put takes no part.
func TestRestoreFromPartsInAnyOrder(t *testing.T) {
	at := func(offset, count int, updates uint64, fill byte) SavedPiece {
		return SavedPiece{Offset: offset, Count: count, Updates: updates, Values: slices.Repeat([]byte{fill}, 4*count), Slots: [][]byte{make([]byte, 4*count)}}
	}
	for name, c := range map[string]struct {
		parts   []SavedPiece
		refused bool // Put must reject the last part
		missing string
	}{
		"whole":        {parts: []SavedPiece{at(0, 10, 7, 1)}},
		"out of order": {parts: []SavedPiece{at(4, 6, 5, 1), at(2, 2, 7, 1), at(0, 2, 6, 1)}},
		"overlapping":  {parts: []SavedPiece{at(0, 9, 7, 1), at(1, 9, 6, 1), at(2, 2, 5, 1)}},
		"nothing":      {missing: "[0, 10) is missing"},
		"no start":     {parts: []SavedPiece{at(1, 9, 7, 1)}, missing: "[0, 1) is missing"},
		"no end":       {parts: []SavedPiece{at(0, 9, 7, 1)}, missing: "[9, 10) is missing"},
		"a gap":        {parts: []SavedPiece{at(5, 5, 7, 1), at(0, 4, 7, 1)}, missing: "[4, 5) is missing"},
		"a bad part":   {parts: []SavedPiece{at(0, 9, 7, 1), at(9, 2, 7, 1)}, refused: true, missing: "[9, 10) is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			d, _, _ := halves()
			d.VirtualWorkers, d.Workers, d.Holders = 1, []layout.Range{{Lo: 0, Hi: 1}}, []cluster.Task{{Role: cluster.PS}}
			d.Pieces = []layout.Piece{{Variable: 0, Count: 10}}
			shards, err := New(&d, d.Holders[0], discardHost{})
			if err != nil {
				t.Fatal(err)
			}
			r := shards.Restore()[0]
			for i, part := range c.parts {
				if err := r.Put(part); (err != nil) != (c.refused && i == len(c.parts)-1) {
					t.Errorf("part %d: %v", i, err)
				}
			}
			if err := r.Close(); c.missing == "" && err != nil || c.missing != "" && (err == nil || err.Error() != c.missing) {
				t.Errorf("got %v, want %q", err, c.missing)
			}
			if err := r.Put(at(0, 10, 9, 2)); err == nil || !r.Closed() {
				t.Errorf("a part after the end: %v", err)
			}
			if c.missing != "" {
				return
			}
			shard := shards.At(r.Piece())
			if !bytes.Equal(shard.Value(-1), slices.Repeat([]byte{1}, 40)) || shard.Updates() != 7 {
				t.Errorf("values %v after %d updates, want those of the parts, after 7", shard.Value(-1), shard.Updates())
			}
		})
	}
}

// FuzzKept puts arbitrary parts of a checkpoint. Each must be rejected or
// copied, without a write outside of the shard.
func FuzzKept(f *testing.F) {
	f.Add(0, 5, 5, []byte{}, 20, 20)
	f.Add(1, 5, 5, []byte{6, 9}, 16, 16)
	f.Add(1, 0, 10, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 80, 80)
	f.Fuzz(func(t *testing.T, variable, offset, count int, index []byte, values, slot int) {
		if values < 0 || values > 1<<10 || slot < 0 || slot > 1<<10 {
			return
		}
		d, _, _ := halves()
		d.VirtualWorkers, d.Workers, d.Holders = 1, []layout.Range{{Lo: 0, Hi: 1}}, []cluster.Task{cluster.Task{Role: cluster.PS}}
		d.Pieces = []layout.Piece{{Variable: 0, Count: 10}, {Variable: 1, Offset: 0, Count: 7}, {Variable: 1, Offset: 7, Count: 3}}
		shards, err := New(&d, d.Holders[0], discardHost{})
		if err != nil {
			t.Fatal(err)
		}
		k := SavedPiece{Variable: variable, Offset: offset, Count: count, Values: make([]byte, values), Slots: [][]byte{make([]byte, slot)}}
		for _, row := range index {
			k.Rows = append(k.Rows, int64(row))
		}
		var putting sync.WaitGroup
		for _, r := range shards.Restore() {
			putting.Go(func() {
				if err := r.Put(k); err == nil && (offset < 0 || count <= 0 || offset+count > 10) {
					t.Errorf("took %+v", k)
				}
				r.Close() // the error names a missing range
			})
		}
		putting.Wait()
	})
}

// discardHost is a Host that ignores all events.
type discardHost struct{}

func (discardHost) Memory(layout.Piece) []byte { return nil }
func (discardHost) Tell(int, Event)            {}
func (discardHost) Fail(error)                 {}

// FuzzReport decodes arbitrary bytes as a shard holder's report for the
// gradient norm.
func FuzzReport(f *testing.F) {
	d, _, _ := halves()
	d.VirtualWorkers, d.Workers = 1, []layout.Range{{Lo: 0, Hi: 1}}
	d.Holders = []cluster.Task{{Role: cluster.PS}, {Role: cluster.PS, Index: 1}}
	d.Pieces = []layout.Piece{{Variable: 0, Count: 10}, {Variable: 1, Holder: 1, Count: 7}, {Variable: 1, Offset: 7, Count: 3}}
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<63))
	f.Add(make([]byte, 8*len(d.Pieces)))
	f.Fuzz(func(t *testing.T, b []byte) {
		for holder := range d.Holders {
			n := NewNorm(&d)
			_, _, err := n.Take(holder, b)
			for i, squares := range n.squares {
				if len(squares) > 0 && d.Pieces[i].Holder != holder || len(squares) > d.MaxSquares(d.Pieces[i]) {
					t.Fatalf("%d sums for piece %+v", len(squares), d.Pieces[i])
				}
			}
			if err == nil && uint64(len(b)) > MaxReport(&d, holder) {
				t.Fatalf("accepted %d bytes, at most %d are declared", len(b), MaxReport(&d, holder))
			}
		}
	})
}
