package client

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// counting returns a declaration in which every update decreases every element
// by the number of its virtual workers. So values count the applied gradients.
func counting(mode string, workers int) layout.Declaration {
	d := in(mode, example(workers, workers))
	d.Variables = append(d.Variables, layout.Variable{Name: "table", Dtype: layout.Float32, Shape: []int{50, 3}, Sparse: &layout.Sparse{}})
	d.Optimizer, d.Sum = optimizer.Settings{Rule: optimizer.SGD}, true
	return d
}

// count takes a step in which every gradient is 1.
func (m *member) count() (Outcome, error) { return m.add(1) }

// add takes a step in which every gradient is x.
func (m *member) add(x float64) (Outcome, error) {
	if err := m.Begin(1); err != nil {
		return Outcome{}, err
	}
	for leaf := m.virtual.Lo; leaf < m.virtual.Hi; leaf++ {
		for i, v := range m.holders.d.Variables {
			if v.Sparse == nil {
				fill(v.Dtype, m.Gradient(leaf, i), x)
				m.Contribute(leaf, i)
				continue
			}
			index, values := make([]int64, v.Units()), make([]byte, v.Units()*v.UnitBytes())
			for row := range index {
				index[row] = int64(row)
			}
			fill(v.Dtype, values, x)
			m.ContributeRows(leaf, i, index, values)
		}
	}
	sums := make([][]float64, m.virtual.Len())
	for i := range sums {
		sums[i] = []float64{1}
	}
	return m.Finish(context.Background(), sums)
}

func fill(d layout.Dtype, b []byte, x float64) {
	if d == layout.Float32 {
		for i := range wire.Floats[float32](b) {
			wire.Floats[float32](b)[i] = float32(x)
		}
		return
	}
	for i := range wire.Floats[float64](b) {
		wire.Floats[float64](b)[i] = x
	}
}

// downBy checks that all elements of a part have decreased by the same number,
// and returns that number.
func downBy(t *testing.T, d *layout.Declaration, k aggregate.SavedPiece) float64 {
	t.Helper()
	var all []float64
	if d.Variables[k.Variable].Dtype == layout.Float32 {
		for _, x := range wire.Floats[float32](k.Values) {
			all = append(all, float64(-x))
		}
	} else {
		for _, x := range wire.Floats[float64](k.Values) {
			all = append(all, -x)
		}
	}
	for _, x := range all {
		if x != all[0] {
			t.Fatalf("variable %d [%d, %d): %v here, %v there: a gradient is half in", k.Variable, k.Offset, k.Offset+k.Count, all[0], x)
		}
	}
	if k.Rows != nil && k.Updates > 0 && len(k.Rows) != k.Count {
		t.Fatalf("%d of %d rows after %d updates", len(k.Rows), k.Count, k.Updates)
	}
	if len(all) == 0 {
		return 0
	}
	return math.Abs(all[0])
}

// saves returns the snapshots of all shard holders, grouped by save.
func (s *store) saves() (all [][]transition.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := map[cluster.Task]int{}
	for _, x := range s.took {
		n := of[x.Holder]
		if of[x.Holder]++; n == len(all) {
			all = append(all, nil)
		}
		all[n] = append(all[n], x)
	}
	return all
}

// While all workers send gradients, every saved piece contains exactly the
// steps before the cut.
func TestSaveInOtherModesUnderLoad(t *testing.T) {
	const steps = 25
	for _, c := range []struct {
		mode string
		per  float64 // leaves of an update
	}{{"async", 1}, {"ssp:2", 1}, {"group:2", 2}, {"backup:1", 3}} {
		for _, to := range []string{c.mode, "sync"} {
			t.Run(c.mode+" to "+to, func(t *testing.T) {
				t.Parallel()
				j := newJob(t, counting(c.mode, 4), policy.Servers, 3)
				j.zeros = true
				members := j.connect(t)
				var running sync.WaitGroup
				var cuts [][]uint64 // the chief's
				for _, m := range members {
					running.Go(func() {
						for m.Step() < steps {
							if m.rank == 0 {
								cuts = append(cuts, m.saveCut(t, Passing))
							}
							end, err := m.count()
							if err != nil || end.Saved {
								t.Errorf("worker:%d: %+v, %v", m.rank, end, err)
								return
							}
							if end.Over {
								return
							}
						}
					})
				}
				running.Wait()
				leave(t, j, members)
				saves := j.store.saves()
				if len(saves) != len(cuts) || len(cuts) == 0 {
					t.Fatalf("%d saves of %d cuts", len(saves), len(cuts))
				}
				for i, all := range saves {
					checkCut(t, &j.d, all, cuts[i], c.per)
				}
				countOn(t, saves[len(saves)-1], to)
			})
		}
	}
}

// checkCut checks that the snapshots of all shard holders contain exactly the
// steps before a cut.
func checkCut(t *testing.T, d *layout.Declaration, all []transition.Snapshot, cut []uint64, per float64) {
	t.Helper()
	want := uint64(0)
	for _, steps := range cut {
		want += steps
	}
	if len(all) != len(d.Holders) {
		t.Fatalf("%d of %d shard holders have saved", len(all), len(d.Holders))
	}
	for _, x := range all {
		for _, k := range x.Pieces {
			if down := downBy(t, d, k); k.Updates != want || down != per*float64(want) || x.Step != cut[0] {
				t.Fatalf("%s has variable %d down by %v after %d updates, and the chief at step %d, of the cut %v", x.Holder, k.Variable, down, k.Updates, x.Step, cut)
			}
		}
	}
}

// saveCut makes the chief agree on a cut and save it.
func (m *member) saveCut(t *testing.T, kind CutKind) []uint64 {
	t.Helper()
	cut, err := m.Saves.Cut(context.Background(), kind)
	if err == nil {
		err = m.Saves.Save()
	}
	if err != nil {
		t.Error(err)
	}
	return cut
}

// countOn resumes from a checkpoint in another mode, and checks that new steps
// add to the restored values.
func countOn(t *testing.T, last []transition.Snapshot, mode string) {
	t.Helper()
	const steps = 3
	if strings.HasPrefix(mode, "backup") {
		mode = "backup:0" // makes the final values independent of the order of workers
	}
	d := counting(mode, 2)
	d.VirtualWorkers, d.Workers = 4, ranges(4, 2)
	d.Checkpoint, d.First = "under load", last[0].Step
	j := newJob(t, d, policy.Servers, 2)
	if err := j.d.AssignPieces(policy.Servers, 2, 100); err != nil { // otherwise
		t.Fatal(err)
	}
	j.store.fill(last)
	members := j.connect(t)
	members[0].saveCut(t, Passing)
	began := j.saved(t, j.d.Pieces, d.First)
	counts := map[layout.Place]uint64{}
	for _, x := range began {
		for _, k := range x.Pieces {
			counts[layout.Place{Variable: k.Variable, Offset: k.Offset}] = k.Updates
			checkOverlaps(t, k, last)
		}
	}
	var running sync.WaitGroup
	for _, m := range members {
		running.Go(func() {
			for range steps {
				if end, err := m.count(); err != nil || end.Over || end.Late {
					t.Errorf("worker:%d: %+v, %v", m.rank, end, err)
				}
			}
		})
	}
	running.Wait()
	members[0].saveCut(t, Passing)
	more := uint64(steps) // updates
	if mode == "async" || mode == "ssp:2" || mode == "group:2" {
		more *= 2
	}
	for _, x := range j.saved(t, j.d.Pieces, d.First+steps) {
		for _, k := range x.Pieces {
			if want := counts[layout.Place{Variable: k.Variable, Offset: k.Offset}] + more; k.Updates != want {
				t.Errorf("variable %d [%d, %d): %d updates, want %d", k.Variable, k.Offset, k.Offset+k.Count, k.Updates, want)
			}
		}
	}
	for _, m := range members {
		if m.Step() != d.First+steps {
			t.Errorf("worker:%d is at step %d", m.rank, m.Step())
		}
	}
	leave(t, j, members)
	checkSums(t, &j.d, last, j.store.at(d.First+steps), 4*steps)
}

// checkOverlaps checks that a restored part has the highest number of updates
// of all saved parts that it overlaps.
func checkOverlaps(t *testing.T, k aggregate.SavedPiece, from []transition.Snapshot) {
	t.Helper()
	most := uint64(0)
	for _, x := range from {
		for _, part := range x.Pieces {
			if part.Variable == k.Variable && part.Offset < k.Offset+k.Count && k.Offset < part.Offset+part.Count {
				most = max(most, part.Updates)
			}
		}
	}
	if k.Updates != most {
		t.Errorf("variable %d [%d, %d): restored with %d updates, want %d", k.Variable, k.Offset, k.Offset+k.Count, k.Updates, most)
	}
}

// checkSums checks that every element has decreased by more since before.
func checkSums(t *testing.T, d *layout.Declaration, before, after []transition.Snapshot, more float64) {
	t.Helper()
	for i, v := range d.Variables {
		a, b := spreadOut(d, before, i), spreadOut(d, after, i)
		for at := range a {
			if a[at]-b[at] != more {
				t.Fatalf("%s: element %d was %v and is %v, want it to go down by %v", v.Name, at, a[at], b[at], more)
			}
		}
	}
}

// spreadOut returns all elements of a variable from the snapshots that contain
// them.
func spreadOut(d *layout.Declaration, snapshots []transition.Snapshot, variable int) []float64 {
	v := d.Variables[variable]
	all := make([]float64, v.NumElements())
	for _, x := range snapshots {
		for _, k := range x.Pieces {
			if k.Variable != variable {
				continue
			}
			width := v.Width()
			for i := range len(k.Values) / v.Dtype.Size() {
				at := k.Offset*width + i
				if k.Rows != nil {
					at = int(k.Rows[i/width])*width + i%width
				}
				if v.Dtype == layout.Float32 {
					all[at] = float64(wire.Floats[float32](k.Values)[i])
				} else {
					all[at] = wire.Floats[float64](k.Values)[i]
				}
			}
		}
	}
	return all
}

// Pieces that were saved with different numbers of updates can be joined by a
// move. The new piece has the highest of these numbers.
func TestMoveJoinsPiecesWithUnevenUpdateCounts(t *testing.T) {
	d := movableTables(2, 2, optimizer.Adam)
	j := restored(t, d, 3, policy.Servers, 2)
	var parts []aggregate.SavedPiece
	for _, k := range j.store.has {
		half := (k.Count + 1) / 2
		parts = append(parts, slice(&d, k, 0, half))
		if k.Count > half {
			parts = append(parts, slice(&d, k, half, k.Count))
			parts[len(parts)-1].Updates += 4
		}
	}
	j.store.has = parts
	var halved []layout.Piece // of the tables
	for _, p := range j.d.Pieces {
		v := j.d.Variables[p.Variable]
		if v.Sparse == nil {
			halved = append(halved, p)
			continue
		}
		half := (v.Units() + 1) / 2
		halved = append(halved, layout.Piece{Variable: p.Variable, Holder: 0, Offset: 0, Count: half}, layout.Piece{Variable: p.Variable, Holder: 1, Offset: half, Count: v.Units() - half})
	}
	j.d.Pieces = halved
	members := j.connect(t)
	must(t, repartition(members, onHolder(&j.d, 1)))
	if err := members[0].Saves.Save(); err != nil {
		t.Fatal(err)
	}
	all := j.saved(t, members[0].holders.shards.Load().d.Pieces, 3)
	for i, v := range d.Variables {
		if k := whole(t, &j.d, all, i); k.Updates != 3+4 && v.Units() > 1 {
			t.Errorf("%s: %d updates, want 7", v.Name, k.Updates)
		}
	}
	_, errs := step(members, 3, 0.1)
	must(t, errs)
	leave(t, j, members)
}
