// Package statetwin is a simple model of a training's state. Tests of
// checkpoints compare the state that plx restores with this model.
package statetwin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
)

// Twin is the state of a training. A unit of a variable is an element or, for
// an embedding table, a row. Twin stores each unit as its value followed by
// its optimizer slots.
type Twin struct {
	Variables []layout.Variable
	Optimizer optimizer.Settings
	Units     []map[int][]byte // units of each variable by unit number, indexed by variable; a table row that was never updated is missing
	Updates   []uint64         // number of updates of each variable, indexed by variable
	Batch     int              // number of rows of a batch, for all workers together
}

// New returns a random state of a fixed list of variables.
func New(random *rand.Rand, rule optimizer.Rule) *Twin {
	w := &Twin{Optimizer: optimizer.Settings{Rule: rule, Momentum: 0.9, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}, Batch: 12}
	w.Variables = []layout.Variable{
		{Name: "w", Dtype: layout.Float32, Shape: []int{7, 300}},
		{Name: "b", Dtype: layout.Float64, Shape: []int{random.IntN(20) + 1}},
		{Name: "scalar", Dtype: layout.Float32},
		{Name: "w[0:5]/slot.0", Dtype: layout.Float64, Shape: []int{3, 2}}, // the variable's name looks like the name of a piece or slot in a checkpoint, to confuse a careless parser
		{Name: "mean", Dtype: layout.Float32, Shape: []int{9}, Update: optimizer.Average, Momentum: 0.5},
		{Name: "words", Dtype: layout.Float32, Shape: []int{500, 3}, Sparse: &layout.Sparse{}},
		{Name: "rare", Dtype: layout.Float64, Shape: []int{1000, 2, 2}, Sparse: &layout.Sparse{}},
	}
	for i, v := range w.Variables {
		units := map[int][]byte{}
		for u := range count(v) {
			if v.Sparse == nil || random.IntN(100) < []int{0, 30}[i%2] || v.Name == "rare" && u%97 == 3 {
				units[u] = Noise(random, w.Unit(i)*(1+w.slots(i)))
			}
		}
		w.Units = append(w.Units, units)
		w.Updates = append(w.Updates, uint64(random.IntN(50)))
	}
	return w
}

// Noise returns n random bytes.
func Noise(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// Unit is the size in bytes of one element or table row of variable i.
func (w *Twin) Unit(i int) int {
	v := w.Variables[i]
	if v.Sparse != nil {
		return product(v.Shape[1:]) * v.Dtype.Size()
	}
	return v.Dtype.Size()
}

func (w *Twin) slots(i int) int {
	if w.Variables[i].Update == optimizer.Average {
		return 0
	}
	return w.Optimizer.Slots()
}

// Kept returns the content of a piece (a range of a variable) in the form in
// which a shard holder passes it to a checkpoint.
func (w *Twin) Kept(p layout.Piece) aggregate.SavedPiece {
	k := aggregate.SavedPiece{Variable: p.Variable, Offset: p.Offset, Count: p.Count, Updates: w.Updates[p.Variable],
		Slots: make([][]byte, w.slots(p.Variable))}
	size := w.Unit(p.Variable)
	for u := p.Offset; u < p.Offset+p.Count; u++ {
		unit, ok := w.Units[p.Variable][u]
		if !ok {
			continue
		}
		if w.Variables[p.Variable].Sparse != nil {
			k.Rows = append(k.Rows, int64(u))
		}
		k.Values = append(k.Values, unit[:size]...)
		for i := range k.Slots {
			k.Slots[i] = append(k.Slots[i], unit[(1+i)*size:(2+i)*size]...)
		}
	}
	return k
}

// cut divides all variables at random into pieces and assigns the pieces to
// shard holders (tasks that hold pieces).
func (w *Twin) cut(random *rand.Rand, holders int) (pieces []layout.Piece) {
	for i, v := range w.Variables {
		for at, n := 0, count(v); at < n; {
			units := n - at
			if random.IntN(3) > 0 {
				units = 1 + random.IntN(units)
			}
			pieces = append(pieces, layout.Piece{Variable: i, Holder: random.IntN(holders), Offset: at, Count: units})
			at += units
		}
	}
	return pieces
}

// Whole returns the piece that covers all of variable i.
func (w *Twin) Whole(i int) layout.Piece {
	return layout.Piece{Variable: i, Count: count(w.Variables[i])}
}

// Declare returns a declaration that divides the variables among shard holders
// at random. Every shard holder has at least one piece.
func (w *Twin) Declare(random *rand.Rand, holders []cluster.Task, from string) *layout.Declaration {
	d := &layout.Declaration{Holders: holders, Variables: w.Variables, Optimizer: w.Optimizer, Checkpoint: from}
	for len(Holding(d)) < len(holders) {
		d.Pieces = w.cut(random, len(holders))
	}
	return d
}

// Manifest returns the manifest (list of the checkpoint's content) with which
// the chief begins a checkpoint.
func (w *Twin) Manifest(step uint64) checkpoint.Manifest {
	m := checkpoint.Manifest{Job: "job", Step: step, VirtualWorkers: 4, Batch: w.Batch, Optimizer: w.Optimizer}
	for _, v := range w.Variables {
		m.Variables = append(m.Variables, checkpoint.Variable{Name: v.Name, Dtype: string(v.Dtype), Shape: v.Shape,
			Sparse: v.Sparse != nil, Update: v.Update, Momentum: v.Momentum})
	}
	return m
}

// Holding returns the shard holders that hold at least one piece.
func Holding(d *layout.Declaration) (tasks []cluster.Task) {
	for i, t := range d.Holders {
		if slices.ContainsFunc(d.Pieces, func(p layout.Piece) bool { return p.Holder == i }) {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// Taken collects the content of a piece while a checkpoint is restored. Its
// method Put does in a simple way what a shard holder does.
type Taken struct {
	w     *Twin
	piece layout.Piece

	mu      sync.Mutex
	units   map[int][]byte
	covered map[int]bool
	updates uint64
}

// Put stores a part of the piece.
func (r *Taken) Put(k aggregate.SavedPiece) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, size := r.piece.Variable, r.w.Unit(r.piece.Variable)
	if k.Variable != i || len(k.Slots) != r.w.slots(i) {
		return fmt.Errorf("variable %d with %d slots", k.Variable, len(k.Slots))
	}
	rows := k.Rows
	for u := k.Offset; u < k.Offset+k.Count; u++ {
		if r.covered[u] {
			return fmt.Errorf("%d was put before", u)
		}
		r.covered[u] = true
		if r.w.Variables[i].Sparse == nil {
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

// Compare returns an error if the restored piece differs from the piece of the
// Twin.
func (r *Taken) Compare() error {
	name := r.w.Variables[r.piece.Variable].Name
	for u := r.piece.Offset; u < r.piece.Offset+r.piece.Count; u++ {
		want, got := r.w.Units[r.piece.Variable][u], r.units[u]
		if !r.covered[u] || string(got) != string(want) {
			return fmt.Errorf("%s: unit %d is % x, want % x, covered %t", name, u, got, want, r.covered[u])
		}
	}
	if r.updates != r.w.Updates[r.piece.Variable] {
		return fmt.Errorf("%s: %d updates, want %d", name, r.updates, r.w.Updates[r.piece.Variable])
	}
	return nil
}

// Take returns a Taken that will collect the content of a piece.
func (w *Twin) Take(p layout.Piece) *Taken {
	return &Taken{w: w, piece: p, units: map[int][]byte{}, covered: map[int]bool{}}
}

// Restored returns the numbers of the restored units, in no particular order.
func (r *Taken) Restored() (units []int) {
	for u := range r.units {
		units = append(units, u)
	}
	return units
}

// count is the number of units of a variable: rows of a table, or elements.
func count(v layout.Variable) int {
	if v.Sparse != nil {
		return v.Shape[0]
	}
	return product(v.Shape)
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
