package machine

import (
	"encoding/binary"
	"math/bits"

	"github.com/plx-run/plx/internal/ptx/scalar"
)

// A Load is ld of one to four elements.
type Load struct{ Access }

// Run executes the step.
func (s *Load) Run(w *Warp) {
	if w.missing(s.Base) != 0 {
		w.unwritten(s.Base)
		return
	}
	if len(s.Parts) == 1 && s.Width == 4 && s.Extend[0] == 0 {
		s.words(w)
		return
	}
	v := s.view(w)
	for m := w.exec; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) % Lanes
		r, offset := s.at(w, &v, lane)
		if r == nil {
			return
		}
		for k, p := range s.Parts {
			v := r.Get(offset+uint64(k)*s.Width, s.Width)
			if s.Extend[0] != 0 {
				v = SignExtend(v, s.Extend[0], s.Extend[1])
			}
			w.registers[p][lane] = v
		}
	}
	for _, p := range s.Parts {
		w.written[p] |= w.exec
	}
}

// words loads one word for each lane.
func (s *Load) words(w *Warp) {
	v := s.view(w)
	d := &w.registers[s.Parts[0]]
	for m := w.exec; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) % Lanes
		r, offset := s.at(w, &v, lane)
		if r == nil {
			return
		}
		d[lane] = uint64(binary.LittleEndian.Uint32(r.Data[offset:]))
	}
	w.written[s.Parts[0]] |= w.exec
}

// SignExtend repeats the sign of a value of some bits up to a width.
func SignExtend(v uint64, from, to int) uint64 {
	return uint64(int64(v<<(64-from))>>(64-from)) & (^uint64(0) >> (64 - to))
}

// A Store is st of one to four elements.
type Store struct{ Access }

// NewStore returns a store.
func NewStore(a Access) *Store {
	a.writes = true
	return &Store{a}
}

// Run executes the step.
func (s *Store) Run(w *Warp) {
	if w.missing(s.Base) != 0 {
		w.unwritten(s.Base)
		return
	}
	for _, p := range s.Parts {
		if w.missing(p) != 0 {
			w.unwritten(p)
			return
		}
	}
	v := s.view(w)
	for m := w.exec; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) % Lanes
		r, offset := s.at(w, &v, lane)
		if r == nil {
			return
		}
		for k, p := range s.Parts {
			r.Put(offset+uint64(k)*s.Width, s.Width, w.registers[p][lane])
		}
	}
}

// An Update is atom or red: lane after lane, in their order.
type Update struct {
	Access
	D    int // register for the old value; -1 for none
	B, C int // registers of the operands
	f    scalar.Function
}

// NewUpdate returns an atomic operation that writes what f returns for the old
// value and two operands.
func NewUpdate(a Access, d, b, c int, f scalar.Function) *Update {
	a.writes, a.atomic = true, true
	return &Update{a, d, b, c, f}
}

// Run executes the step.
func (s *Update) Run(w *Warp) {
	if w.missing(s.Base) != 0 || w.missing(s.B) != 0 || w.missing(s.C) != 0 {
		w.unwrittenOf(s.Base, s.B, s.C)
		return
	}
	for m := w.exec; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) % Lanes
		r, offset := s.reach(w, lane)
		if r == nil {
			return
		}
		old := r.Get(offset, s.Width)
		r.Put(offset, s.Width, s.f(old, w.registers[s.B][lane], w.registers[s.C][lane], 0))
		if s.D >= 0 {
			w.registers[s.D][lane] = old
		}
	}
	if s.D >= 0 {
		w.written[s.D] |= w.exec
	}
}
