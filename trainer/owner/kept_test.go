package owner

import (
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
)

// halves is the second half of variable 0, dense, and of 1, a table.
func halves() (d Declaration, dense, table Kept) {
	d = Declaration{Optimizer: optimizer.Settings{Rule: optimizer.Momentum}, Variables: []Variable{
		{Name: "w", Dtype: Float32, Shape: []int{10}},
		{Name: "t", Dtype: Float32, Shape: []int{10, 2}, Sparse: &Sparse{}},
	}}
	dense = Kept{Variable: 0, Offset: 5, Count: 5, Updates: 3, Values: make([]byte, 20), Slots: [][]byte{make([]byte, 20)}}
	table = Kept{Variable: 1, Offset: 5, Count: 5, Updates: 3, Rows: []int64{6, 9}, Values: make([]byte, 16), Slots: [][]byte{make([]byte, 16)}}
	return d, dense, table
}

func TestBadPartsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		variable int
		change   func(k *Kept)
		want     string
	}{
		"good":            {0, func(*Kept) {}, ""},
		"good rows":       {1, func(*Kept) {}, ""},
		"no rows":         {1, func(k *Kept) { *k = Kept{Variable: 1, Count: 10, Slots: [][]byte{nil}} }, ""},
		"other variable":  {0, func(k *Kept) { k.Variable = 1 }, "a part of variable 1, want one of 0"},
		"before it":       {0, func(k *Kept) { k.Offset = -1 }, "no part of 5 from -1 on"},
		"behind it":       {0, func(k *Kept) { k.Offset = 6 }, "no part of 5 from 6 on"},
		"far behind it":   {0, func(k *Kept) { k.Offset = 1 << 62; k.Count = 1 << 62 }, "no part"},
		"nothing":         {0, func(k *Kept) { k.Count = 0 }, "no part of 0"},
		"rows of dense":   {0, func(k *Kept) { k.Rows = []int64{} }, "rows of a dense variable"},
		"short":           {0, func(k *Kept) { k.Values = k.Values[1:] }, "19 bytes for"},
		"other type":      {0, func(k *Kept) { k.Values = make([]byte, 40) }, "40 bytes for"},
		"no slots":        {0, func(k *Kept) { k.Slots = nil }, "0 slots of the optimiser, want 1"},
		"two slots":       {1, func(k *Kept) { k.Slots = append(k.Slots, k.Slots[0]) }, "2 slots of the optimiser, want 1"},
		"short slot":      {0, func(k *Kept) { k.Slots = [][]byte{nil} }, "0 bytes for"},
		"row before":      {1, func(k *Kept) { k.Rows[0] = 4 }, "row 4 is outside [5, 10)"},
		"row behind":      {1, func(k *Kept) { k.Rows[1] = 10 }, "row 10 is outside [5, 10)"},
		"rows descending": {1, func(k *Kept) { k.Rows[0] = 9 }, "row 9 after row 9"},
		"values of more":  {1, func(k *Kept) { k.Rows = k.Rows[:1] }, "16 bytes for 1 rows of 8"},
	} {
		d, dense, table := halves()
		k := []Kept{dense, table}[c.variable]
		c.change(&k)
		if err := d.checkKept(k, c.variable); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// FuzzKept puts any part: it is refused or copied, never more.
func FuzzKept(f *testing.F) {
	f.Add(0, 5, 5, []byte{}, 20, 20)
	f.Add(1, 5, 5, []byte{6, 9}, 16, 16)
	f.Add(1, 0, 10, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 80, 80)
	f.Fuzz(func(t *testing.T, variable, offset, count int, index []byte, values, slot int) {
		if values < 0 || values > 1<<10 || slot < 0 || slot > 1<<10 {
			return
		}
		d, _, _ := halves()
		d.Leaves, d.Workers, d.Owners = 1, []Range{{0, 1}}, []cluster.Task{server0(0)}
		d.Pieces = []Piece{{Variable: 0, Count: 10}, {Variable: 1, Offset: 0, Count: 7}, {Variable: 1, Offset: 7, Count: 3}}
		e, err := newEngine(&d, server0(0), func(Piece) []byte { return nil })
		if err != nil {
			t.Fatal(err)
		}
		k := Kept{Variable: variable, Offset: offset, Count: count, Values: make([]byte, values), Slots: [][]byte{make([]byte, slot)}}
		for _, row := range index {
			k.Rows = append(k.Rows, int64(row))
		}
		var putting sync.WaitGroup
		for _, s := range e.lasting() {
			putting.Go(func() {
				r := &restoring{d: &d, piece: s.piece(), slot: s}
				if err := r.Put(k); err == nil && (offset < 0 || count <= 0 || offset+count > 10) {
					t.Errorf("took %+v", k)
				}
				r.close() // says what is missing
			})
		}
		putting.Wait()
	})
}
