package owner

import (
	"fmt"

	"github.com/plx-run/plx/trainer/wire"
)

// maxMoved bounds the bytes of rows that one frame moves, where a row is not
// longer.
const maxMoved = 1 << 20

// movable is a slot whose rows move from one owner to another, with all that
// the optimiser keeps for them. Rows that were never updated do not travel:
// their values follow from the seed.
type movable interface {
	table
	// export appends rows from row from on, before row to, as many as fit in
	// a frame, and returns the row to go on with; nothing: there are no more.
	export(into []byte, from, to int64) (frame []byte, next int64)
	// accept takes such a frame, of rows in [from, to), and returns the row
	// after the last of them.
	accept(frame []byte, from, to int64) (next int64, err error)
	maxFrame(from, to int64) uint64
	// adopt copies rows [from, to) of another slot in this process.
	adopt(other movable, from, to int64)
	// count and counts carry the updates. They are the same wherever pieces of
	// a variable are, or the highest count holds where a checkpoint had others.
	count() uint64
	counts(updates uint64) error
}

// frameRows is how many rows of so many bytes one frame moves.
func frameRows(size int) int { return max(1, maxMoved/size) }

func (s *rows[T]) export(into []byte, from, to int64) (frame []byte, next int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	index := s.table.Updated(from, to, frameRows(s.table.MoveSize()), nil)
	if len(index) == 0 {
		return into, to
	}
	return s.table.Export(into, index), index[len(index)-1] + 1
}

func (s *rows[T]) accept(frame []byte, from, to int64) (next int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Import(frame, from, to)
}

func (s *rows[T]) maxFrame(from, to int64) uint64 {
	size := s.table.MoveSize()
	return maxRows(int(min(to-from, int64(frameRows(size)))), size)
}

func (s *rows[T]) adopt(other movable, from, to int64) {
	of := other.(*rows[T])
	index := make([]int64, 0, frameRows(s.table.MoveSize()))
	for from < to {
		index = of.table.Updated(from, to, cap(index), index[:0])
		if len(index) == 0 {
			return
		}
		s.mu.Lock() // others may bring rows meanwhile
		s.table.Adopt(of.table, index)
		s.mu.Unlock()
		from = index[len(index)-1] + 1
	}
}

func (s *rows[T]) count() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.updates
}

func (s *rows[T]) counts(updates uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.counted && s.uneven:
		updates = max(s.updates, updates)
	case s.counted && s.updates != updates:
		return fmt.Errorf("%d updates of variable %d, elsewhere it had %d", updates, s.Variable, s.updates)
	}
	s.updates, s.counted = updates, true
	return nil
}

// header begins a frame about rows of a transfer.
func (t transfer) header(kind wire.Kind, step uint64) wire.Header {
	return wire.Header{Kind: kind, Variable: uint32(t.new.Variable), Offset: uint64(t.lo), Step: step}
}

// isOf reports whether a frame is about the transfer.
func (t transfer) isOf(h wire.Header) bool {
	return uint64(h.Variable) == uint64(t.new.Variable) && h.Offset == uint64(t.lo)
}
