package machine

import "math/bits"

// A Truth is a predicate that a step reads, or its opposite.
type Truth struct {
	P      int
	Negate bool
}

// A Join is a boolean operation on masks.
type Join int

// The boolean operations. First is the first operand.
const (
	First Join = iota
	And
	Or
	Xor
)

func (j Join) apply(a, b uint32) uint32 {
	switch j {
	case And:
		return a & b
	case Or:
		return a | b
	case Xor:
		return a ^ b
	}
	return a
}

// A Compare writes a predicate, and another with the opposite.
type Compare struct {
	D, Opposite int // predicates; Opposite is -1 for none
	A, B        int
	F           func(a, b uint64) bool
	Join        Join
	Third       Truth // for Join
}

// Run executes the step.
func (s *Compare) Run(w *Warp) {
	if w.missing(s.A) != 0 || w.missing(s.B) != 0 {
		w.unwrittenOf(s.A, s.B)
		return
	}
	a, b := &w.registers[s.A], &w.registers[s.B]
	var yes uint32
	for m := w.exec; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) % Lanes
		if s.F(a[i], b[i]) {
			yes |= 1 << i
		}
	}
	no := ^yes
	if s.Join != First {
		third, ok := w.truth(s.Third)
		if !ok {
			return
		}
		yes, no = s.Join.apply(yes, third), s.Join.apply(no, third)
	}
	w.decide(s.D, yes)
	if s.Opposite >= 0 {
		w.decide(s.Opposite, no)
	}
}

// A Select is selp.
type Select struct {
	D, A, B int
	By      Truth
}

// Run executes the step.
func (s *Select) Run(w *Warp) {
	yes, ok := w.truth(s.By)
	if !ok {
		return
	}
	d, a, b := &w.registers[s.D], &w.registers[s.A], &w.registers[s.B]
	for m := w.exec; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) % Lanes
		if yes>>i&1 != 0 {
			d[i] = a[i]
		} else {
			d[i] = b[i]
		}
	}
	known := yes&w.written[s.A] | ^yes&w.written[s.B]
	w.written[s.D] = w.written[s.D]&^w.exec | known&w.exec
}

// A Logic is and, or, xor or not of predicates.
type Logic struct {
	D    int
	A, B Truth
	Join Join
}

// Run executes the step.
func (s *Logic) Run(w *Warp) {
	a, ok := w.truth(s.A)
	if !ok {
		return
	}
	if b, ok := w.truth(s.B); ok {
		w.decide(s.D, s.Join.apply(a, b))
	}
}

// A Copy is mov of predicates, written or not.
type Copy struct {
	D int
	A Truth
}

// Run executes the step.
func (s *Copy) Run(w *Warp) {
	known, yes := w.assigned[s.A.P], w.preds[s.A.P]
	if s.A.Negate {
		yes = ^yes
	}
	w.decide(s.D, yes)
	w.assigned[s.D] = w.assigned[s.D]&^w.exec | known&w.exec
}
