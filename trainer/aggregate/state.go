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

// state holds the values of a shard and the optimiser state for them. The lock
// of the shard guards it.
type state interface {
	// apply updates the values by the gradient sum t. nil means that no worker
	// contributed gradients.
	apply(t total, s optimizer.Step) error
	// preserve returns a copy of the values and the optimiser state, and for a
	// sparse variable the indices of the copied rows.
	preserve() sparse.SavedRows
	// restore copies elements or rows [lo, hi) of the variable from k, a
	// checked part of a checkpoint. offset is the position of the shard's
	// first element or row in the variable.
	restore(k SavedPiece, offset, lo, hi int)
}

// copier is the state of a dense variable, whose values are always sent whole.
type copier interface {
	// keep copies the values into the copy with index readerGroup (a group of
	// workers that read the same copy); the method value then returns that
	// copy. If readerGroup is -1, keep copies nothing and value returns the
	// values themselves.
	keep(readerGroup int)
	value(readerGroup int) []byte
}

// reader is the state of a sparse variable, whose rows are read one by one.
type reader interface {
	read(index []int64, into []byte) error
	copyRows(first int64, into []byte) error
	// changed returns the rows in index that the last step changed.
	changed(index []int64) []int64
}

// filler is a state whose initial values the chief (worker 0) may send.
type filler interface {
	fill(values []byte) error
}

// movable is the state of a sparse variable, whose rows can move to another
// shard holder (a task that stores rows) together with their optimiser state.
// Rows that were never updated or filled do not move: the new holder draws
// their values from the seed.
type movable interface {
	export(into []byte, from, to int64) (frame []byte, next int64)
	accept(frame []byte, from, to int64) (next int64, err error)
}

// newState returns the state of a piece (part of a variable) before the first
// step. memory stores dense values; if it is nil, newState allocates.
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

// elementsState is the state of a piece (part) of a dense variable, whose
// values are always sent whole.
type elementsState[T wire.Float] struct {
	values []T
	rule   *optimizer.State[T]
	kept   [][]T // by readerGroup (a group of workers that read the same values): their copy of values; nil before the first copy
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

func (s *elementsState[T]) keep(readerGroup int) {
	if readerGroup < 0 {
		return
	}
	if s.kept[readerGroup] == nil {
		s.kept[readerGroup] = make([]T, len(s.values))
	}
	copy(s.kept[readerGroup], s.values)
}

func (s *elementsState[T]) value(readerGroup int) []byte {
	if readerGroup < 0 {
		return wire.Bytes(s.values)
	}
	return wire.Bytes(s.kept[readerGroup])
}

func (s *elementsState[T]) preserve() (k sparse.SavedRows) {
	k.Values = bytes.Clone(wire.Bytes(s.values))
	for _, slot := range s.rule.Slots() {
		k.Slots = append(k.Slots, bytes.Clone(wire.Bytes(slot)))
	}
	return k
}

func (s *elementsState[T]) restore(k SavedPiece, offset, lo, hi int) {
	into := func(memory []T, from []byte) {
		size := len(from) / k.Count
		copy(wire.Bytes(memory[lo-offset:hi-offset]), from[(lo-k.Offset)*size:])
	}
	into(s.values, k.Values)
	for i, slot := range s.rule.Slots() {
		into(slot, k.Slots[i])
	}
}

// loss is the state of the shard that sums the workers' loss and metrics. In
// each step, apply replaces its values by the sum of that step, without an
// optimiser.
type loss struct{ *elementsState[float64] }

func (l loss) apply(t total, _ optimizer.Step) error {
	clear(l.values)
	if t != nil {
		copy(l.values, t.(elements[float64]))
	}
	return nil
}

// tableState is the state of a piece of a sparse variable: some rows of an
// embedding table.
type tableState[T wire.Float] struct {
	table    *sparse.Table[T]
	rowBytes int     // number of bytes of the values of one row
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

func (s *tableState[T]) preserve() sparse.SavedRows { return s.table.Keep() }

func (s *tableState[T]) restore(k SavedPiece, _, lo, hi int) {
	kept := sparse.SavedRows{Index: k.Rows, Values: k.Values, Slots: k.Slots}
	if err := s.table.Put(kept.Cut(int64(lo), int64(hi), s.rowBytes)); err != nil {
		panic(err) // k is valid, because SavedPiece.Check has accepted it
	}
}

// maxMoved is the maximum number of bytes of rows in one frame when rows move
// to another shard holder. A frame with a single row may be larger.
const maxMoved = 1 << 20

// frameRows returns the number of rows that fit in one frame. size is the size
// of a row in bytes.
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

// SavedPiece is a part of a checkpoint: elements or rows [Offset, Offset+Count) of a
// variable. For a dense variable it has all elements. For a sparse variable it
// has only the rows that were ever updated; all other rows can be drawn again
// from the seed. Numbers are little-endian; the byte slices need no alignment.
type SavedPiece struct {
	Variable      int      // index of the variable in the declaration
	Offset, Count int      // range of the variable: in elements of a dense variable, in rows of a sparse variable
	Updates       uint64   // number of training steps that were applied to this part
	Rows          []int64  // indices of the rows in Values, ascending; nil for a dense variable
	Values        []byte   // all elements of a dense variable, or the rows named in Rows, one after the other
	Slots         [][]byte // optimiser state: one slice for each number that the optimiser keeps per element, such as a momentum; in the order of Values
}

// Check returns an error if k cannot be a part of the variable with this index
// in d.
func (k SavedPiece) Check(d *layout.Declaration, variable int) error {
	v := d.Variables[variable]
	switch {
	case k.Variable != variable:
		return fmt.Errorf("a part of variable %d, want one of %d, %q", k.Variable, variable, v.Name)
	case k.Offset < 0 || k.Count <= 0 || k.Count > v.Units() || k.Offset > v.Units()-k.Count:
		return fmt.Errorf("variable %q: no part of %d from %d on: there are %d", v.Name, k.Count, k.Offset, v.Units())
	case k.Rows != nil && v.Sparse == nil:
		return fmt.Errorf("variable %q: rows of a dense variable", v.Name)
	}
	kept := sparse.SavedRows{Index: k.Rows, Values: k.Values, Slots: k.Slots}
	lo, hi, size := int64(k.Offset), int64(k.Offset+k.Count), v.UnitBytes()
	if v.Sparse == nil { // A dense variable is checked like a single row.
		kept.Index, lo, hi, size = []int64{0}, 0, 1, k.Count*size
	}
	if err := kept.Check(lo, hi, size, d.Rule(v).Slots()); err != nil {
		return fmt.Errorf("variable %q, part of %d from %d on: %w", v.Name, k.Count, k.Offset, err)
	}
	return nil
}

// preserve returns a copy of the shard's values and optimiser state.
func (s *Shard) preserve() SavedPiece {
	s.mu.RLock()
	defer s.mu.RUnlock()
	kept := s.state.preserve()
	return SavedPiece{Variable: s.Variable, Offset: s.Offset, Count: s.Count, Updates: s.updates,
		Rows: kept.Index, Values: kept.Values, Slots: kept.Slots}
}

// restore copies elements or rows [lo, hi) from k into the shard. SavedPiece.Check
// must have accepted k.
func (s *Shard) restore(k SavedPiece, lo, hi int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.restore(k, s.Offset, lo, hi)
	s.updates = max(s.updates, k.Updates)
}

// Preserve copies the values and optimiser state of all shards except the one
// of the loss.
func Preserve(shards []*Shard) (all []SavedPiece) {
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
	over bool           // true after Close, which makes later calls of Put fail
	came []layout.Range // ranges of elements, or of rows of a sparse variable, that Put has filled
}

// Piece returns the part of a variable that the shard stores.
func (r *Restoring) Piece() layout.Piece { return r.shard.Piece }

// Put copies from k the elements or rows that belong to the shard. The caller
// must put every part of the checkpoint that overlaps the shard, in any order.
// It must put even a part without a row of this shard, because Put also copies
// the number of updates. If parts have different numbers of updates, the
// highest one is used. Several goroutines may call Put.
func (r *Restoring) Put(k SavedPiece) error {
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
		return errors.New("part of a checkpoint arrived too late: the restore has ended")
	}
	r.shard.restore(k, lo, hi)
	r.came = append(r.came, layout.Range{Lo: lo, Hi: hi})
	return nil
}

// Close ends the restore: later calls of Put fail. It returns an error if Put
// has not filled the whole shard; the error names a missing range.
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
