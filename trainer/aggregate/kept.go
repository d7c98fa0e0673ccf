package aggregate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
)

// Kept is what outlives a training of the part [Offset, Offset+Count) of a
// variable: of a dense one all elements, of a sparse one the rows that were
// ever updated, one after the other. The others follow from the seed. Numbers
// lie as in memory; the bytes may lie anywhere.
type Kept struct {
	Variable      int
	Offset, Count int      // elements, or rows of a sparse variable
	Updates       uint64   // that the part has had
	Rows          []int64  // of a sparse variable: which, ascending; nil: dense
	Values        []byte   // by element or row
	Slots         [][]byte // what the optimiser keeps, in the same order
}

// Check says why k is no part of a variable of d.
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

// preserve copies the shard as it is.
func (s *Shard) preserve() Kept {
	s.mu.RLock()
	defer s.mu.RUnlock()
	kept := s.state.preserve()
	return Kept{Variable: s.Variable, Offset: s.Offset, Count: s.Count, Updates: s.updates,
		Rows: kept.Index, Values: kept.Values, Slots: kept.Slots}
}

// restore takes units [lo, hi) from a part that has them and was checked.
func (s *Shard) restore(k Kept, lo, hi int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.restore(k, s.Offset, lo, hi)
	s.updates = max(s.updates, k.Updates)
}

// Preserve copies all that outlives the training.
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
	over bool // nothing is taken any more
	came []layout.Range
}

// Piece is what is being filled.
func (r *Restoring) Piece() layout.Piece { return r.shard.Piece }

// Put takes what is the piece's own of a part of its variable. The parts of a
// checkpoint that overlap the piece must all be put, in any order, also those
// of a sparse variable that have no row of it: they tell how often it was
// updated. If the checkpoint's parts differ in that, the highest count holds.
// Put may be called by several goroutines, and copies.
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

// Close takes nothing any more, and says what did not come.
func (r *Restoring) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	slices.SortFunc(r.came, func(a, b layout.Range) int { return cmp.Compare(a.Lo, b.Lo) })
	at, end := r.shard.Offset, r.shard.Offset+r.shard.Count
	for _, c := range r.came {
		if c.Lo > at {
			return fmt.Errorf("[%d, %d) did not come", at, c.Lo)
		}
		at = max(at, c.Hi)
	}
	if at < end {
		return fmt.Errorf("[%d, %d) did not come", at, end)
	}
	return nil
}

// Closed reports whether nothing is taken any more.
func (r *Restoring) Closed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// String names the piece.
func (r *Restoring) String() string {
	p := r.shard.Piece
	return fmt.Sprintf("variable %q [%d, %d)", r.d.Variables[p.Variable].Name, p.Offset, p.Offset+p.Count)
}
