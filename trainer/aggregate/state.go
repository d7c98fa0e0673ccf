package aggregate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// state is the values of a shard and what the optimiser keeps for them. Its
// shard guards it.
type state interface {
	// apply updates the values by a total; nil: all was absent.
	apply(t total, s optimizer.Step) error
	// preserve copies values and what the optimiser keeps, and names their rows.
	preserve() sparse.Kept
	// restore takes units [lo, hi) of the shard, which begins at offset, from
	// a part that has them and was checked.
	restore(k Kept, offset, lo, hi int)
}

// copier is a state whose values are sent whole.
type copier interface {
	// keep copies the values for an audience; value returns that copy. No
	// audience, -1, is given the values themselves.
	keep(audience int)
	value(audience int) []byte
}

// reader is a state whose rows are read one by one.
type reader interface {
	read(index []int64, into []byte) error
	copyRows(first int64, into []byte) error
	// changed returns those of some rows that the last step changed.
	changed(index []int64) []int64
}

// filler is a state whose first values the chief has.
type filler interface {
	fill(values []byte) error
}

// movable is a state whose rows move from one holder to another, with all that
// the optimiser keeps for them. Rows that were never updated or filled do not travel:
// their values follow from the seed.
type movable interface {
	export(into []byte, from, to int64) (frame []byte, next int64)
	accept(frame []byte, from, to int64) (next int64, err error)
}

// newState makes the state of a piece. memory is where dense values are kept, or nil.
func newState(d *layout.Declaration, p layout.Piece, memory []byte) (state, error) {
	v := d.Variable(p.Variable)
	switch {
	case p.Variable == d.LossIndex():
		s, err := newElements[float64](d, p, memory)
		return loss{s}, err
	case v.Sparse != nil && v.Dtype == layout.Float32:
		return newTable[float32](d, p)
	case v.Sparse != nil:
		return newTable[float64](d, p)
	case v.Dtype == layout.Float32:
		return newElements[float32](d, p, memory)
	}
	return newElements[float64](d, p, memory)
}

// elementsState is the state of a piece whose elements all travel.
type elementsState[T wire.Float] struct {
	values []T
	rule   *optimizer.State[T]
	kept   [][]T // by audience: the copy of values that it is sent; nil before the first copy
}

func newElements[T wire.Float](d *layout.Declaration, p layout.Piece, memory []byte) (*elementsState[T], error) {
	s := &elementsState[T]{values: wire.Floats[T](memory), kept: make([][]T, d.Copies())}
	if memory == nil {
		s.values = make([]T, p.Count)
	}
	var err error
	s.rule, err = optimizer.New[T](d.Rule(d.Variable(p.Variable)), p.Count)
	return s, err
}

func (s *elementsState[T]) apply(t total, step optimizer.Step) error {
	if t != nil {
		s.rule.Apply(step, s.values, t.(elements[T]))
	}
	return nil
}

func (s *elementsState[T]) keep(audience int) {
	if audience < 0 {
		return
	}
	if s.kept[audience] == nil {
		s.kept[audience] = make([]T, len(s.values))
	}
	copy(s.kept[audience], s.values)
}

func (s *elementsState[T]) value(audience int) []byte {
	if audience < 0 {
		return wire.Bytes(s.values)
	}
	return wire.Bytes(s.kept[audience])
}

func (s *elementsState[T]) preserve() (k sparse.Kept) {
	k.Values = bytes.Clone(wire.Bytes(s.values))
	for _, slot := range s.rule.Slots() {
		k.Slots = append(k.Slots, bytes.Clone(wire.Bytes(slot)))
	}
	return k
}

func (s *elementsState[T]) restore(k Kept, offset, lo, hi int) {
	into := func(memory []T, from []byte) {
		size := len(from) / k.Count
		copy(wire.Bytes(memory[lo-offset:hi-offset]), from[(lo-k.Offset)*size:])
	}
	into(s.values, k.Values)
	for i, slot := range s.rule.Slots() {
		into(slot, k.Slots[i])
	}
}

// loss is the state of the step's loss and metrics: the sum is the value.
type loss struct{ *elementsState[float64] }

func (l loss) apply(t total, _ optimizer.Step) error {
	clear(l.values)
	if t != nil {
		copy(l.values, t.(elements[float64]))
	}
	return nil
}

// tableState is the state of rows of a sparse variable.
type tableState[T wire.Float] struct {
	table    *sparse.Table[T]
	rowBytes int     // bytes of a row's values
	last     []int64 // indices of the rows that the last step changed, ascending
}

func newTable[T wire.Float](d *layout.Declaration, p layout.Piece) (*tableState[T], error) {
	v := d.Variables[p.Variable]
	table, err := sparse.NewTable[T](v.Name, v.Sparse.First, d.Rule(v), int64(p.Offset), int64(p.Offset+p.Count), v.Width())
	return &tableState[T]{table: table, rowBytes: v.UnitBytes()}, err
}

func (s *tableState[T]) apply(t total, step optimizer.Step) error {
	s.last = s.last[:0]
	if t == nil {
		return nil
	}
	gradient := sparse.Rows[T](t.(rows[T]))
	s.last = append(s.last, gradient.Index...)
	return s.table.Apply(step, gradient)
}

func (s *tableState[T]) read(index []int64, into []byte) error {
	return s.table.Read(index, wire.Floats[T](into))
}

func (s *tableState[T]) fill(values []byte) error { return s.table.Fill(wire.Floats[T](values)) }

func (s *tableState[T]) copyRows(first int64, into []byte) error {
	return s.table.Copy(first, wire.Floats[T](into))
}

func (s *tableState[T]) changed(index []int64) []int64 { return sparse.Common(index, s.last) }

func (s *tableState[T]) preserve() sparse.Kept { return s.table.Keep() }

func (s *tableState[T]) restore(k Kept, _, lo, hi int) {
	kept := sparse.Kept{Index: k.Rows, Values: k.Values, Slots: k.Slots}
	if err := s.table.Put(kept.Cut(int64(lo), int64(hi), s.rowBytes)); err != nil {
		panic(err) // it was checked
	}
}

// maxMoved bounds the bytes of rows that one frame moves, unless a row is longer.
const maxMoved = 1 << 20

// frameRows is how many rows of so many bytes one frame moves.
func frameRows(size int) int { return max(1, maxMoved/size) }

func (s *tableState[T]) export(into []byte, from, to int64) (frame []byte, next int64) {
	index := s.table.Updated(from, to, frameRows(s.table.MoveSize()), nil)
	if len(index) == 0 {
		return into, to
	}
	return s.table.Export(into, index), index[len(index)-1] + 1
}

func (s *tableState[T]) accept(frame []byte, from, to int64) (next int64, err error) {
	return s.table.Import(frame, from, to)
}

// Kept is what outlives a training of the part [Offset, Offset+Count) of a
// variable: of a dense one all elements, of a sparse one the rows that were
// ever updated, one after the other. The others follow from the seed. Numbers
// lie as in memory; the bytes may lie anywhere.
type Kept struct {
	Variable      int      // index in the declaration
	Offset, Count int      // elements of a dense variable, rows of a sparse one
	Updates       uint64   // number of steps that were applied to the part
	Rows          []int64  // indices of the rows in Values, ascending; nil for a dense variable
	Values        []byte   // all elements, or the stored rows one after the other
	Slots         [][]byte // by slot of the optimiser: its numbers, in the order of Values
}

// Check returns an error if k cannot be a part of a variable of d.
func (k Kept) Check(d *layout.Declaration, variable int) error {
	v := d.Variables[variable]
	switch {
	case k.Variable != variable:
		return fmt.Errorf("a part of variable %d, want one of %d, %q", k.Variable, variable, v.Name)
	case k.Offset < 0 || k.Count <= 0 || k.Count > v.Units() || k.Offset > v.Units()-k.Count:
		return fmt.Errorf("variable %q: no part of %d from %d on: there are %d", v.Name, k.Count, k.Offset, v.Units())
	case k.Rows != nil && v.Sparse == nil:
		return fmt.Errorf("variable %q: rows of a dense variable", v.Name)
	}
	kept := sparse.Kept{Index: k.Rows, Values: k.Values, Slots: k.Slots}
	lo, hi, size := int64(k.Offset), int64(k.Offset+k.Count), v.UnitBytes()
	if v.Sparse == nil { // one row
		kept.Index, lo, hi, size = []int64{0}, 0, 1, k.Count*size
	}
	if err := kept.Check(lo, hi, size, d.Rule(v).Slots()); err != nil {
		return fmt.Errorf("variable %q, part of %d from %d on: %w", v.Name, k.Count, k.Offset, err)
	}
	return nil
}

// preserve copies the state of the shard.
func (s *Shard) preserve() Kept {
	s.mu.RLock()
	defer s.mu.RUnlock()
	kept := s.state.preserve()
	return Kept{Variable: s.Variable, Offset: s.Offset, Count: s.Count, Updates: s.updates,
		Rows: kept.Index, Values: kept.Values, Slots: kept.Slots}
}

// restore copies units [lo, hi) from a checked part.
func (s *Shard) restore(k Kept, lo, hi int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.restore(k, s.Offset, lo, hi)
	s.updates = max(s.updates, k.Updates)
}

// Preserve copies the state of all shards but the loss.
func Preserve(shards []*Shard) (all []Kept) {
	for _, shard := range shards {
		if !shard.isLoss {
			all = append(all, shard.preserve())
		}
	}
	return all
}

// Restoring is a shard that is being filled from a checkpoint.
type Restoring struct {
	d     *layout.Declaration
	shard *Shard

	mu   sync.Mutex
	over bool           // Close was called, so Put fails
	came []layout.Range // elements, or rows of a sparse variable, that Put has taken
}

// Piece returns the piece to restore.
func (r *Restoring) Piece() layout.Piece { return r.shard.Piece }

// Put copies the elements or rows of a part that belong to the piece. The caller must
// put every part of the checkpoint that overlaps the piece, in any order. A part of a
// sparse variable counts even if it has no row of the piece, because it has the number
// of updates. If the parts differ in that number, the highest one holds. Several
// goroutines may call Put.
func (r *Restoring) Put(k Kept) error {
	if err := k.Check(r.d, r.shard.Variable); err != nil {
		return err
	}
	lo, hi := max(k.Offset, r.shard.Offset), min(k.Offset+k.Count, r.shard.Offset+r.shard.Count)
	if lo >= hi {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return errors.New("restored too late")
	}
	r.shard.restore(k, lo, hi)
	r.came = append(r.came, layout.Range{Lo: lo, Hi: hi})
	return nil
}

// Close ends the restoring: later calls of Put fail. The error names a range that no part
// had.
func (r *Restoring) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	slices.SortFunc(r.came, func(a, b layout.Range) int { return cmp.Compare(a.Lo, b.Lo) })
	at, end := r.shard.Offset, r.shard.Offset+r.shard.Count
	for _, c := range r.came {
		if c.Lo > at {
			return fmt.Errorf("[%d, %d) is missing", at, c.Lo)
		}
		at = max(at, c.Hi)
	}
	if at < end {
		return fmt.Errorf("[%d, %d) is missing", at, end)
	}
	return nil
}

// Closed reports whether Close was called.
func (r *Restoring) Closed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

func (r *Restoring) String() string {
	p := r.shard.Piece
	return fmt.Sprintf("variable %q [%d, %d)", r.d.Variables[p.Variable].Name, p.Offset, p.Offset+p.Count)
}
