package client

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// store is a checkpoint store in memory: it collects the snapshots that tasks
// save, and has the parts that they restore.
type store struct {
	mu      sync.Mutex
	took    []transition.Snapshot
	has     []aggregate.SavedPiece // parts of all variables
	instead func(ctx context.Context, d *layout.Declaration, p layout.Piece, into transition.Restoring) error
}

func (s *store) Save(x transition.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = append(s.took, x)
}

// at returns the snapshots that were saved before a step.
func (s *store) at(step uint64) (all []transition.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.took {
		if x.Step == step {
			all = append(all, x)
		}
	}
	return all
}

// fill replaces the checkpoint to restore by snapshots of another training.
func (s *store) fill(snapshots []transition.Snapshot) {
	for _, x := range snapshots {
		s.has = append(s.has, x.Pieces...)
	}
}

// Restore puts random fragments of the data, in any order and from several
// goroutines.
func (s *store) Restore(ctx context.Context, d *layout.Declaration, p layout.Piece, into transition.Restoring) error {
	if s.instead != nil {
		return s.instead(ctx, d, p, into)
	}
	random := rand.New(rand.NewPCG(uint64(p.Variable), uint64(p.Offset)))
	var parts []aggregate.SavedPiece
	for _, k := range s.has {
		if k.Variable == p.Variable {
			parts = append(parts, shred(d, k, random)...)
		}
	}
	random.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	errs := make([]error, len(parts))
	var putting sync.WaitGroup
	for i, k := range parts {
		putting.Go(func() {
			errs[i] = into.Put(k)
			for _, b := range append(k.Slots, k.Values) { // Put has copied
				clear(b)
			}
		})
	}
	putting.Wait()
	return cmp.Or(errs...)
}

// shred divides a part at random positions, even inside blocks and at
// rows that were never updated.
func shred(d *layout.Declaration, k aggregate.SavedPiece, random *rand.Rand) (all []aggregate.SavedPiece) {
	for _, r := range randomRanges(random, k.Count) {
		all = append(all, slice(d, k, k.Offset+r.Lo, k.Offset+r.Hi))
	}
	return all
}

// slice returns a copy of the elements or rows [lo, hi) of a part.
func slice(d *layout.Declaration, k aggregate.SavedPiece, lo, hi int) aggregate.SavedPiece {
	size, from, to := d.Variables[k.Variable].UnitBytes(), lo-k.Offset, hi-k.Offset
	if k.Rows != nil {
		from, _ = slices.BinarySearch(k.Rows, int64(lo))
		to, _ = slices.BinarySearch(k.Rows, int64(hi))
	}
	cut := aggregate.SavedPiece{Variable: k.Variable, Offset: lo, Count: hi - lo, Updates: k.Updates, Values: bytes.Clone(k.Values[from*size : to*size])}
	if k.Rows != nil {
		cut.Rows = k.Rows[from:to]
	}
	for _, b := range k.Slots {
		cut.Slots = append(cut.Slots, bytes.Clone(b[from*size:to*size]))
	}
	return cut
}

// saved waits until all shard holders have saved before a step, and returns
// their snapshots.
func (j *testJob) saved(t *testing.T, pieces []layout.Piece, step uint64) []transition.Snapshot {
	t.Helper()
	holders := map[int]bool{}
	for _, p := range pieces {
		holders[p.Holder] = true
	}
	eventually(t, "everything was saved", func() bool { return len(j.store.at(step)) >= len(holders) })
	all := j.store.at(step)
	for _, x := range all {
		index := j.d.HolderIndex(x.Holder)
		if len(all) != len(holders) || !holders[index] || !slices.Equal(x.Declaration.Pieces, pieces) || len(x.Pieces) == 0 || x.Held <= 0 {
			t.Fatalf("%d snapshots, of %s with %d pieces after %v, of the pieces %v", len(all), x.Holder, len(x.Pieces), x.Held, pieces)
		}
		for _, k := range x.Pieces {
			if !slices.Contains(pieces, layout.Piece{Variable: k.Variable, Holder: index, Offset: k.Offset, Count: k.Count}) {
				t.Fatalf("%s saved %d [%d, %d), of the pieces %v", x.Holder, k.Variable, k.Offset, k.Offset+k.Count, pieces)
			}
		}
	}
	return all
}

// whole joins the saved parts of a variable.
func whole(t *testing.T, d *layout.Declaration, snapshots []transition.Snapshot, variable int) aggregate.SavedPiece {
	t.Helper()
	var parts []aggregate.SavedPiece
	for _, x := range snapshots {
		for _, k := range x.Pieces {
			if k.Variable == variable {
				parts = append(parts, k)
			}
		}
	}
	slices.SortFunc(parts, func(a, b aggregate.SavedPiece) int { return cmp.Compare(a.Offset, b.Offset) })
	v := d.Variables[variable]
	all := aggregate.SavedPiece{Variable: variable, Updates: parts[0].Updates, Slots: make([][]byte, d.Rule(v).Slots())}
	for _, k := range parts {
		if k.Offset != all.Count || k.Updates != all.Updates || (k.Rows == nil) != (v.Sparse == nil) || len(k.Slots) != len(all.Slots) {
			t.Fatalf("%s: a part from %d on with %d updates behind %d with %d", v.Name, k.Offset, k.Updates, all.Count, all.Updates)
		}
		all.Count += k.Count
		all.Rows, all.Values = append(all.Rows, k.Rows...), append(all.Values, k.Values...)
		for i, b := range k.Slots {
			all.Slots[i] = append(all.Slots[i], b...)
		}
	}
	return all
}

// kept returns the state of all variables of the reference, as a checkpoint
// contains it.
func (t *reference) kept() (all []aggregate.SavedPiece) {
	for i, v := range t.d.Variables {
		k := aggregate.SavedPiece{Variable: i, Count: v.Units(), Updates: t.steps, Slots: [][]byte{}}
		switch {
		case v.Sparse != nil:
			table := t.tables[i].Keep()
			k.Rows, k.Values, k.Slots = table.Index, table.Values, append(k.Slots, table.Slots...)
		case v.Dtype == layout.Float32:
			k.Values = bytes.Clone(t.values[i])
			for _, slot := range t.f32[i].Slots() {
				k.Slots = append(k.Slots, bytes.Clone(wire.Bytes(slot)))
			}
		default:
			k.Values = bytes.Clone(t.values[i])
			for _, slot := range t.f64[i].Slots() {
				k.Slots = append(k.Slots, bytes.Clone(wire.Bytes(slot)))
			}
		}
		all = append(all, k)
	}
	return all
}

// checkSaved checks that snapshots have the same bits as the state of the
// reference.
func checkSaved(t *testing.T, d *layout.Declaration, snapshots []transition.Snapshot, want []aggregate.SavedPiece) {
	t.Helper()
	for i, k := range want {
		got := whole(t, d, snapshots, i)
		if len(k.Rows) == 0 {
			k.Rows, got.Rows = nil, nil
		}
		if len(k.Values) == 0 { // of no rows
			k.Values, k.Slots, got.Values, got.Slots = nil, nil, nil, nil
		}
		if !reflect.DeepEqual(got, k) {
			t.Fatalf("%s before step %d: saved with %d updates, rows %v, and not what the reference has with %d updates, rows %v",
				d.Variables[i].Name, snapshots[0].Step, got.Updates, got.Rows, k.Updates, k.Rows)
		}
	}
}
