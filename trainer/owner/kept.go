package owner

import (
	"bytes"

	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
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
	Slots         [][]byte // what the optimiser keeps, likewise
}

// lasting is a slot whose piece outlives the training.
type lasting interface {
	slot
	// preserve copies the piece as it is.
	preserve() Kept
	// restore takes units [lo, hi) of the piece from a part that has them and
	// has passed a check.
	restore(k Kept, lo, hi int)
}

// lasting returns the slots that outlive the training: all but the tally's.
func (e *engine) lasting() (all []lasting) {
	for _, s := range e.slots {
		if s.piece().Variable != e.d.tally() {
			all = append(all, s.(lasting))
		}
	}
	return all
}

func (s *dense[T]) preserve() Kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := Kept{Variable: s.Variable, Offset: s.Offset, Count: s.Count, Updates: s.updates}
	k.Values = bytes.Clone(wire.Bytes(s.values))
	for _, slot := range s.state.Slots() {
		k.Slots = append(k.Slots, bytes.Clone(wire.Bytes(slot)))
	}
	return k
}

func (s *dense[T]) restore(k Kept, lo, hi int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	into := func(memory []T, from []byte) {
		size := len(from) / k.Count
		copy(wire.Bytes(memory[lo-s.Offset:hi-s.Offset]), from[(lo-k.Offset)*size:])
	}
	into(s.values, k.Values)
	for i, slot := range s.state.Slots() {
		into(slot, k.Slots[i])
	}
	s.updates = max(s.updates, k.Updates)
}

func (s *rows[T]) preserve() Kept {
	s.mu.RLock()
	defer s.mu.RUnlock()
	kept := s.table.Keep()
	return Kept{Variable: s.Variable, Offset: s.Offset, Count: s.Count, Updates: s.updates,
		Rows: kept.Index, Values: kept.Values, Slots: kept.Slots}
}

func (s *rows[T]) restore(k Kept, lo, hi int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := sparse.Kept{Index: k.Rows, Values: k.Values, Slots: k.Slots}
	if err := s.table.Put(kept.Cut(int64(lo), int64(hi), s.rowBytes())); err != nil {
		panic(err) // it was checked
	}
	s.updates = max(s.updates, k.Updates)
}
