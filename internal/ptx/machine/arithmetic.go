package machine

import (
	"math/bits"

	"github.com/plx-run/plx/internal/ptx/device"
	"github.com/plx-run/plx/internal/ptx/scalar"
)

// An Apply gives a register the result of a function of up to four others.
type Apply struct {
	D      int
	Args   []int
	F      scalar.Function
	Divide bool // the second operand must not be zero
	four   [4]int
}

// NewApply returns an Apply of one to four arguments.
func NewApply(d int, args []int, op scalar.Operation) *Apply {
	s := &Apply{D: d, Args: args, F: op.F, Divide: op.Divide}
	for i := range s.four {
		s.four[i] = args[min(i, len(args)-1)]
	}
	return s
}

// Run executes the step.
func (s *Apply) Run(w *Warp) {
	for _, a := range s.Args {
		if w.missing(a) != 0 {
			w.unwritten(a)
			return
		}
	}
	if s.Divide && s.zero(w) {
		return
	}
	r := &s.four
	x, a, b, c, e := &w.registers[s.D], &w.registers[r[0]], &w.registers[r[1]], &w.registers[r[2]], &w.registers[r[3]]
	if w.exec == allMask {
		for i := range x {
			x[i] = s.F(a[i], b[i], c[i], e[i])
		}
	} else {
		for m := w.exec; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m) % Lanes
			x[i] = s.F(a[i], b[i], c[i], e[i])
		}
	}
	w.written[s.D] |= w.exec
}

// zero fails if a lane divides by zero.
func (s *Apply) zero(w *Warp) bool {
	for m := w.exec; m != 0; m &= m - 1 {
		if i := bits.TrailingZeros32(m); w.registers[s.Args[1]][i] == 0 {
			w.fail(device.DivideByZero, 1<<i, 0, "the divisor is zero")
			return true
		}
	}
	return false
}

// A Move copies a register, written or not.
type Move struct{ D, A int }

// Run executes the step.
func (s *Move) Run(w *Warp) {
	d, a := &w.registers[s.D], &w.registers[s.A]
	for m := w.exec; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) % Lanes
		d[i] = a[i]
	}
	w.written[s.D] = w.written[s.D]&^w.exec | w.written[s.A]&w.exec
}

// A Pack makes one register of several, or several of one.
type Pack struct {
	Whole int
	Parts []int // the lowest bits first
	Bits  int   // of a part
	Split bool  // several of one
}

// Run executes the step.
func (s *Pack) Run(w *Warp) {
	if s.Split {
		s.split(w)
		return
	}
	whole := [Lanes]uint64{}
	for k, p := range s.Parts {
		if w.missing(p) != 0 {
			w.unwritten(p)
			return
		}
		for i := range whole {
			whole[i] |= w.registers[p][i] << (k * s.Bits)
		}
	}
	for m := w.exec; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		w.registers[s.Whole][i] = whole[i]
	}
	w.written[s.Whole] |= w.exec
}

func (s *Pack) split(w *Warp) {
	if w.missing(s.Whole) != 0 {
		w.unwritten(s.Whole)
		return
	}
	whole := w.registers[s.Whole]
	for k, p := range s.Parts {
		for m := w.exec; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			w.registers[p][i] = whole[i] >> (k * s.Bits) & (1<<s.Bits - 1)
		}
		w.written[p] |= w.exec
	}
}
