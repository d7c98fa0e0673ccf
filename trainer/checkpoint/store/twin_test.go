package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/internal/test/statetwin"
	"github.com/plx-run/plx/trainer/checkpoint/tensors"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
)

// twin is a reference copy of a training's state: variables, and the workers'
// recurrent state.
type twin struct {
	*statetwin.Twin
	carried map[string]tensors.Carried // of the whole batch
}

// newTwin returns a random state.
func newTwin(random *rand.Rand, rule optimizer.Rule) *twin {
	w := &twin{Twin: statetwin.New(random, rule)}
	w.carried = map[string]tensors.Carried{
		"h":    {Dtype: "float32", Shape: []int{w.Batch, 4}, Data: statetwin.Noise(random, w.Batch*16)},
		"seen": {Dtype: "int64", Shape: []int{w.Batch}, Data: statetwin.Noise(random, w.Batch*8)},
	}
	return w
}

// expect announces a save of w, in which all workers also save recurrent
// state.
func (j *testJob) expect(w *twin, step uint64, d *layout.Declaration) {
	j.t.Helper()
	e := Expected{Manifest: w.Manifest(step), Holders: statetwin.Holding(d)}
	for _, t := range j.tasks {
		if t.Role == cluster.Worker {
			e.Carriers = append(e.Carriers, t)
		}
	}
	if err := j.chief().Expect(e); err != nil {
		j.t.Fatal(err)
	}
}

// give passes to every task's store its part of state w, except to the tasks
// but.
func (j *testJob) give(w *twin, step uint64, d *layout.Declaration, but ...cluster.Task) {
	workers := 0
	for _, t := range j.tasks {
		if t.Role == cluster.Worker {
			workers++
		}
	}
	for _, t := range j.tasks {
		if slices.Contains(but, t) {
			continue
		}
		s := transition.Snapshot{Step: step, Declaration: d, Holder: t, Held: 1}
		for _, p := range d.Pieces {
			if d.Holders[p.Holder] == t {
				s.Pieces = append(s.Pieces, w.Kept(p))
			}
		}
		if len(s.Pieces) > 0 {
			j.stores[t].Save(s)
		}
		if t.Role == cluster.Worker {
			lo, hi := w.Batch*t.Index/workers, w.Batch*(t.Index+1)/workers
			j.stores[t].SaveCarried(step, lo, hi, w.rows(lo, hi))
		}
	}
}

// rows returns the recurrent state for rows [lo, hi) of the batch.
func (w *twin) rows(lo, hi int) map[string]tensors.Carried {
	state := map[string]tensors.Carried{}
	for name, c := range w.carried {
		size := len(c.Data) / w.Batch
		shape := append([]int{hi - lo}, c.Shape[1:]...)
		state[name] = tensors.Carried{Dtype: c.Dtype, Shape: shape, Data: slices.Clone(c.Data[lo*size : hi*size])}
	}
	return state
}

// save makes a checkpoint of w and checks that it succeeds.
func (j *testJob) save(w *twin, step uint64, d *layout.Declaration) {
	j.t.Helper()
	j.expect(w, step, d)
	j.give(w, step, d)
	if err := j.chief().Wait(soon(j.t)); err != nil {
		j.t.Fatal(err)
	}
}

// restores checks that every shard holder of the declaration restores the
// values of w, and every worker its recurrent state.
func (j *testJob) restores(w *twin, d *layout.Declaration) {
	j.t.Helper()
	ctx := soon(j.t)
	var work sync.WaitGroup
	for _, p := range d.Pieces {
		work.Go(func() {
			if err := w.restore(ctx, j.stores[d.Holders[p.Holder]], d, p); err != nil {
				j.t.Errorf("%s: %v", d.Holders[p.Holder], err)
			}
		})
	}
	work.Wait()
	for task, store := range j.stores {
		if task.Role != cluster.Worker {
			continue
		}
		for _, rows := range [][2]int{{0, w.Batch}, {task.Index, task.Index + 3}, {5, 5}} {
			if err := w.compareCarried(ctx, store, rows[0], rows[1]); err != nil {
				j.t.Errorf("%s: %v", task, err)
			}
		}
		store.Restored()
	}
}

func (w *twin) restore(ctx context.Context, from *Store, d *layout.Declaration, p layout.Piece) error {
	r := w.Take(p)
	if err := from.Restore(ctx, d, p, r); err != nil {
		return err
	}
	return r.Compare()
}

func (w *twin) compareCarried(ctx context.Context, from *Store, lo, hi int) error {
	for name, want := range w.rows(lo, hi) {
		got, ok, err := from.Carried(ctx, name, lo, hi)
		if err != nil || !ok || got.Dtype != want.Dtype || !slices.Equal(got.Shape, want.Shape) || string(got.Data) != string(want.Data) {
			return fmt.Errorf("%s: %v, %t, %v, want %v", name, got, ok, err, want)
		}
	}
	if _, ok, err := from.Carried(ctx, "nothing", lo, hi); ok || err != nil {
		return fmt.Errorf("state that nobody carried: %t, %v", ok, err)
	}
	return nil
}

// For random numbers of tasks and hosts and random placements, the restored
// state equals the saved one bit for bit.
func TestRestoreReturnsSavedState(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			root := t.TempDir()
			rule := []optimizer.Rule{optimizer.SGD, optimizer.Momentum, optimizer.Adam}[random.IntN(3)]
			w := newTwin(random, rule)
			before := draw(random)
			j := opened(t, root, before)
			if m := j.choose(); m != nil {
				t.Fatalf("chosen %s in empty folders", m.ID)
			}
			d := w.Declare(random, j.tasks, "")
			j.save(w, 40, d)
			j.says("DEBUG+2", "checkpoint of step 40: ")
			if s := j.chief().Summary(); s.Saved != 1 || s.Failed != 0 || s.Bytes == 0 || s.LongestHeld != 1 {
				t.Errorf("summary %+v", s)
			}
			j.end()
			after := draw(random)
			after.generation = 1
			after.hosts = before.hosts[:max(1, min(len(before.hosts), after.servers+after.workers))]
			if len(after.hosts) < len(before.hosts) {
				after.workers += len(before.hosts)
				after.hosts = before.hosts
			}
			j = opened(t, root, after)
			m := j.choose()
			if m == nil || m.Step != 40 || m.Generation != 0 {
				t.Fatalf("chosen %v", m)
			}
			j.restores(w, w.Declare(random, j.tasks, m.ID))
			j.end()
		})
	}
}

func draw(random *rand.Rand) shape {
	l := shape{servers: random.IntN(3), workers: 1 + random.IntN(3)}
	for i := range 1 + random.IntN(min(3, l.servers+l.workers)) {
		l.hosts = append(l.hosts, strings.Repeat("h", i+1))
	}
	return l
}
