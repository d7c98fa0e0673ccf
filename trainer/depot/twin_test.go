package depot

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/owner"
)

// twin is a training's state, plainly: by variable every unit that is stored,
// with its slots behind its values.
type twin struct {
	variables []owner.Variable
	optimizer optimizer.Settings
	units     []map[int][]byte // by variable, by element or row
	updates   []uint64
	batch     int
	carried   map[string]Carried // of the whole batch
}

// newTwin draws a state of some variables.
func newTwin(random *rand.Rand, rule optimizer.Rule) *twin {
	w := &twin{optimizer: optimizer.Settings{Rule: rule, Momentum: 0.9, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}, batch: 12}
	w.variables = []owner.Variable{
		{Name: "w", Dtype: owner.Float32, Shape: []int{7, 300}},
		{Name: "b", Dtype: owner.Float64, Shape: []int{random.IntN(20) + 1}},
		{Name: "scalar", Dtype: owner.Float32},
		{Name: "w[0:5]/slot.0", Dtype: owner.Float64, Shape: []int{3, 2}}, // a name that is asking for it
		{Name: "mean", Dtype: owner.Float32, Shape: []int{9}, Update: optimizer.Average, Momentum: 0.5},
		{Name: "words", Dtype: owner.Float32, Shape: []int{500, 3}, Sparse: &owner.Sparse{}},
		{Name: "rare", Dtype: owner.Float64, Shape: []int{1000, 2, 2}, Sparse: &owner.Sparse{}},
	}
	for i, v := range w.variables {
		units := map[int][]byte{}
		for u := range wholeOf(v) {
			if v.Sparse == nil || random.IntN(100) < []int{0, 30}[i%2] || v.Name == "rare" && u%97 == 3 {
				units[u] = noise(random, w.unit(i)*(1+w.slots(i)))
			}
		}
		w.units = append(w.units, units)
		w.updates = append(w.updates, uint64(random.IntN(50)))
	}
	w.carried = map[string]Carried{
		"h":    {"float32", []int{w.batch, 4}, noise(random, w.batch*16)},
		"seen": {"int64", []int{w.batch}, noise(random, w.batch*8)},
	}
	return w
}

func noise(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// unit is the bytes of an element or row of a variable.
func (w *twin) unit(i int) int {
	v := w.variables[i]
	if v.Sparse != nil {
		return width(v) * v.Dtype.Size()
	}
	return v.Dtype.Size()
}

func (w *twin) slots(i int) int {
	if w.variables[i].Update == optimizer.Average {
		return 0
	}
	return w.optimizer.Slots()
}

// kept is a piece as an owner gives it.
func (w *twin) kept(p owner.Piece) owner.Kept {
	k := owner.Kept{Variable: p.Variable, Offset: p.Offset, Count: p.Count, Updates: w.updates[p.Variable],
		Slots: make([][]byte, w.slots(p.Variable))}
	size := w.unit(p.Variable)
	for u := p.Offset; u < p.Offset+p.Count; u++ {
		unit, ok := w.units[p.Variable][u]
		if !ok {
			continue
		}
		if w.variables[p.Variable].Sparse != nil {
			k.Rows = append(k.Rows, int64(u))
		}
		k.Values = append(k.Values, unit[:size]...)
		for i := range k.Slots {
			k.Slots[i] = append(k.Slots[i], unit[(1+i)*size:(2+i)*size]...)
		}
	}
	return k
}

// cut draws pieces of all variables for owners.
func (w *twin) cut(random *rand.Rand, owners int) (pieces []owner.Piece) {
	for i, v := range w.variables {
		for at, n := 0, wholeOf(v); at < n; {
			count := n - at
			if random.IntN(3) > 0 {
				count = 1 + random.IntN(count)
			}
			pieces = append(pieces, owner.Piece{Variable: i, Owner: random.IntN(owners), Offset: at, Count: count})
			at += count
		}
	}
	return pieces
}

// whole is a piece that is all of a variable.
func (w *twin) whole(i int) owner.Piece {
	return owner.Piece{Variable: i, Count: wholeOf(w.variables[i])}
}

// declare is a declaration of the twin's variables over some owners, of which
// each has something.
func (w *twin) declare(random *rand.Rand, owners []cluster.Task, from string) *owner.Declaration {
	d := &owner.Declaration{Owners: owners, Variables: w.variables, Optimizer: w.optimizer, Checkpoint: from}
	for len(owning(d)) < len(owners) {
		d.Pieces = w.cut(random, len(owners))
	}
	return d
}

// manifest is what the chief knows of a save beforehand.
func (w *twin) manifest(step uint64) checkpoint.Manifest {
	m := checkpoint.Manifest{Job: "job", Step: step, Leaves: 4, Batch: w.batch, Optimizer: w.optimizer}
	for _, v := range w.variables {
		m.Variables = append(m.Variables, checkpoint.Variable{Name: v.Name, Dtype: string(v.Dtype), Shape: v.Shape,
			Sparse: v.Sparse != nil, Update: v.Update, Momentum: v.Momentum})
	}
	return m
}

// owning returns the owners that have a piece.
func owning(d *owner.Declaration) (tasks []cluster.Task) {
	for i, t := range d.Owners {
		if slices.ContainsFunc(d.Pieces, func(p owner.Piece) bool { return p.Owner == i }) {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// expect announces a save of the twin, with state of all workers.
func (j *testJob) expect(w *twin, step uint64, d *owner.Declaration) {
	j.t.Helper()
	e := Expected{Manifest: w.manifest(step), Owners: owning(d)}
	for _, t := range j.tasks {
		if t.Role == cluster.Worker {
			e.Carriers = append(e.Carriers, t)
		}
	}
	if err := j.chief().Expect(e); err != nil {
		j.t.Fatal(err)
	}
}

// give hands every depot but some what its task has.
func (j *testJob) give(w *twin, step uint64, d *owner.Declaration, but ...cluster.Task) {
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
		s := owner.Snapshot{Step: step, Declaration: d, Owner: t, Held: 1}
		for _, p := range d.Pieces {
			if d.Owners[p.Owner] == t {
				s.Pieces = append(s.Pieces, w.kept(p))
			}
		}
		if len(s.Pieces) > 0 {
			j.depots[t].Save(s)
		}
		if t.Role == cluster.Worker {
			lo, hi := w.batch*t.Index/workers, w.batch*(t.Index+1)/workers
			j.depots[t].SaveCarried(step, lo, hi, w.rows(lo, hi))
		}
	}
}

// rows is what is carried for some rows of the batch.
func (w *twin) rows(lo, hi int) map[string]Carried {
	state := map[string]Carried{}
	for name, c := range w.carried {
		size := len(c.Data) / w.batch
		shape := append([]int{hi - lo}, c.Shape[1:]...)
		state[name] = Carried{c.Dtype, shape, slices.Clone(c.Data[lo*size : hi*size])}
	}
	return state
}

// save saves the twin and wants that to go well.
func (j *testJob) save(w *twin, step uint64, d *owner.Declaration) {
	j.t.Helper()
	j.expect(w, step, d)
	j.give(w, step, d)
	if err := j.chief().Wait(soon(j.t)); err != nil {
		j.t.Fatal(err)
	}
}

// taken is a piece that is being restored: Put is that of an owner, plainly.
type taken struct {
	w     *twin
	piece owner.Piece

	mu      sync.Mutex
	units   map[int][]byte
	covered map[int]bool
	updates uint64
}

func (r *taken) Put(k owner.Kept) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, size := r.piece.Variable, r.w.unit(r.piece.Variable)
	if k.Variable != i || len(k.Slots) != r.w.slots(i) {
		return fmt.Errorf("variable %d with %d slots", k.Variable, len(k.Slots))
	}
	rows := k.Rows
	for u := k.Offset; u < k.Offset+k.Count; u++ {
		if r.covered[u] {
			return fmt.Errorf("%d was put before", u)
		}
		r.covered[u] = true
		if r.w.variables[i].Sparse == nil {
			rows = append(rows, int64(u))
		}
	}
	if len(k.Values) != len(rows)*size {
		return fmt.Errorf("%d bytes for %d of %d", len(k.Values), len(rows), size)
	}
	for n, row := range rows {
		if !r.covered[int(row)] || r.units[int(row)] != nil {
			return fmt.Errorf("row %d is out of place", row)
		}
		unit := slices.Clone(k.Values[n*size : (n+1)*size])
		for _, slot := range k.Slots {
			unit = append(unit, slot[n*size:(n+1)*size]...)
		}
		r.units[int(row)] = unit
	}
	r.updates = max(r.updates, k.Updates)
	return nil
}

// compare says where a restored piece is not the twin's.
func (r *taken) compare() error {
	name := r.w.variables[r.piece.Variable].Name
	for u := r.piece.Offset; u < r.piece.Offset+r.piece.Count; u++ {
		want, got := r.w.units[r.piece.Variable][u], r.units[u]
		if !r.covered[u] || string(got) != string(want) {
			return fmt.Errorf("%s: unit %d is % x, want % x, covered %t", name, u, got, want, r.covered[u])
		}
	}
	if r.updates != r.w.updates[r.piece.Variable] {
		return fmt.Errorf("%s: %d updates, want %d", name, r.updates, r.w.updates[r.piece.Variable])
	}
	return nil
}

// restores wants all owners of a declaration to get back what the twin has,
// and all workers their state.
func (j *testJob) restores(w *twin, d *owner.Declaration) {
	j.t.Helper()
	ctx := soon(j.t)
	var work sync.WaitGroup
	for _, p := range d.Pieces {
		work.Go(func() {
			if err := w.restore(ctx, j.depots[d.Owners[p.Owner]], d, p); err != nil {
				j.t.Errorf("%s: %v", d.Owners[p.Owner], err)
			}
		})
	}
	work.Wait()
	for task, depot := range j.depots {
		if task.Role != cluster.Worker {
			continue
		}
		for _, rows := range [][2]int{{0, w.batch}, {task.Index, task.Index + 3}, {5, 5}} {
			if err := w.compareCarried(ctx, depot, rows[0], rows[1]); err != nil {
				j.t.Errorf("%s: %v", task, err)
			}
		}
		depot.Restored()
	}
}

func (w *twin) restore(ctx context.Context, from *Depot, d *owner.Declaration, p owner.Piece) error {
	r := &taken{w: w, piece: p, units: map[int][]byte{}, covered: map[int]bool{}}
	if err := from.Restore(ctx, d, p, r); err != nil {
		return err
	}
	return r.compare()
}

func (w *twin) compareCarried(ctx context.Context, from *Depot, lo, hi int) error {
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

// Whatever the numbers of tasks and hosts, and whoever owns what: what comes
// out is what went in, bit by bit.
func TestRestoresWhatWasSaved(t *testing.T) {
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
			d := w.declare(random, j.tasks, "")
			j.save(w, 40, d)
			j.says("INFO", "checkpoint of step 40: ")
			if s := j.chief().Summary(); s.Saved != 1 || s.Failed != 0 || s.LastStep != 40 || s.Bytes == 0 || s.LongestHeld != 1 {
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
			j.restores(w, w.declare(random, j.tasks, m.ID))
			j.end()
		})
	}
}

func draw(random *rand.Rand) layout {
	l := layout{servers: random.IntN(3), workers: 1 + random.IntN(3)}
	for i := range 1 + random.IntN(min(3, l.servers+l.workers)) {
		l.hosts = append(l.hosts, strings.Repeat("h", i+1))
	}
	return l
}
