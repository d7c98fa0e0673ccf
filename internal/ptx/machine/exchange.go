package machine

import (
	"fmt"
	"math/bits"

	"github.com/plx-run/plx/internal/ptx/device"
)

// Members is the register with the mask of lanes that execute a step together.
type Members struct{ Mask int }

// gather reports whether all lanes of the masks of the executing lanes execute
// the step. Otherwise the lanes wait for those that are elsewhere.
func (s Members) gather(w *Warp) bool {
	if w.missing(s.Mask) != 0 {
		w.unwritten(s.Mask)
		return false
	}
	var all uint32
	for m := w.exec; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		named := uint32(w.registers[s.Mask][i])
		if named>>i&1 == 0 {
			w.fail(device.InactiveLane, 1<<i, 0, fmt.Sprintf("lane %d is not in its own mask %#x", i, named))
			return false
		}
		all |= named
	}
	absent := all &^ w.exec
	if absent == 0 {
		return true
	}
	if gone := absent &^ w.alive(); gone != 0 {
		w.fail(device.InactiveLane, w.exec, 0, fmt.Sprintf("the mask %#x names lanes %#x, which have left or never were", all, gone))
		return false
	}
	w.wait()
	return false
}

// Direction is a mode of a shuffle.
type Direction int

// The modes of a shuffle.
const (
	Up Direction = iota
	Down
	Butterfly
	Index
)

// A Shuffle is shfl.sync.
type Shuffle struct {
	Members
	Mode       Direction
	D, A, B, C int
	Inside     int // predicate: the source was in the segment; -1 for none
}

// source is the lane from which a lane reads, and whether it is in the segment.
func (s *Shuffle) source(lane, b, c int) (int, bool) {
	segment := c >> 8 & 31
	end := lane&segment | c&31&^segment
	switch s.Mode {
	case Up:
		return lane - b, lane-b >= end
	case Down:
		return lane + b, lane+b <= end
	case Butterfly:
		return lane ^ b, lane^b <= end
	}
	from := lane&segment | b&^segment
	return from, from <= end
}

// Run executes the step.
func (s *Shuffle) Run(w *Warp) {
	if w.missing(s.B) != 0 || w.missing(s.C) != 0 {
		w.unwrittenOf(s.B, s.C)
		return
	}
	if !s.gather(w) {
		return
	}
	old, known := w.registers[s.A], w.written[s.A]
	var inside, written uint32
	for m := w.exec; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m)
		from, ok := s.source(lane, int(w.registers[s.B][lane]&31), int(w.registers[s.C][lane]))
		if ok {
			inside |= 1 << lane
		} else {
			from = lane
		}
		if w.exec>>from&1 == 0 {
			w.fail(device.InactiveLane, 1<<lane, 0, fmt.Sprintf("lane %d reads from lane %d, which does not execute the instruction", lane, from))
			return
		}
		w.registers[s.D][lane] = old[from]
		written |= known >> from & 1 << lane
	}
	w.written[s.D] = w.written[s.D]&^w.exec | written
	if s.Inside >= 0 {
		w.decide(s.Inside, inside)
	}
}

// Question is what a vote asks.
type Question int

// The questions of votes.
const (
	Active  Question = iota // activemask: which lanes execute this?
	Ballot                  // for which lanes does the predicate hold?
	All                     // for all lanes?
	Any                     // for one lane?
	Uniform                 // for all or for none?
	Same                    // match.any: which lanes have the same value?
)

// A Vote tells each lane something about all lanes.
type Vote struct {
	Members // not for Active
	Ask     Question
	D       int // register; for All, Any and Uniform a predicate
	By      Truth
	A       int // register, for Same
}

// Run executes the step.
func (s *Vote) Run(w *Warp) {
	if s.Ask == Active {
		s.answer(w, w.exec)
		return
	}
	if !s.gather(w) {
		return
	}
	if s.Ask == Same {
		if w.missing(s.A) != 0 {
			w.unwritten(s.A)
			return
		}
		s.answer(w, 0)
		return
	}
	if yes, ok := w.truth(s.By); ok {
		s.answer(w, yes&w.exec)
	}
}

// answer gives all lanes their results.
func (s *Vote) answer(w *Warp, yes uint32) {
	var decided uint32
	for m := w.exec; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m)
		named := w.exec
		if s.Ask != Active {
			named = uint32(w.registers[s.Mask][lane])
		}
		votes := yes & named
		switch s.Ask {
		case Same:
			w.registers[s.D][lane] = uint64(s.same(w, lane, named))
		case Active, Ballot:
			w.registers[s.D][lane] = uint64(votes)
		default:
			if s.Ask == Any && votes != 0 || s.Ask != Any && votes == named || s.Ask == Uniform && votes == 0 {
				decided |= 1 << lane
			}
		}
	}
	if s.Ask == All || s.Ask == Any || s.Ask == Uniform {
		w.decide(s.D, decided)
		return
	}
	w.written[s.D] |= w.exec
}

// same returns the lanes that have the same value as a lane.
func (s *Vote) same(w *Warp, lane int, named uint32) (equal uint32) {
	for i, v := range w.registers[s.A] {
		if named>>i&1 != 0 && v == w.registers[s.A][lane] {
			equal |= 1 << i
		}
	}
	return equal
}

// A Meeting is bar.warp.sync: its lanes see each other's writes after it.
type Meeting struct{ Members }

// Run executes the step.
func (s *Meeting) Run(w *Warp) {
	if s.gather(w) {
		w.meet()
	}
}
