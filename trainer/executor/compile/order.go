package compile

import (
	"cmp"
	"slices"
)

// targets are the values that a program is compiled for.
type targets struct {
	gradients []*Value // by Plan.Differentiate
	variables []*Value // by Plan.Differentiate: the leaves
	outputs   []*Value // by Plan.Outputs, then the loss
}

// all are gradients and outputs.
func (t targets) all() []*Value { return slices.Concat(t.gradients, t.outputs) }

// candidates bounds the number of gradients that are compared with each other
// at a time, so that a thousand layers are ordered quickly.
const candidates = 8

// schedule orders the instructions, inputs first.
type schedule struct {
	order []*Value
	added []bool // by id: the value is in order, or needs no instruction
	stamp []int  // by id: the last estimate that counted the value
	now   int    // number of the estimate under way
}

// order returns the values that instructions compute, inputs first. Gradients
// come as early as possible, the cheapest first; that is the last layer's.
//
// A variable may be overwritten after its gradient is announced. So an output
// that no gradient needs comes before the gradients if it reads a variable, and
// after them otherwise.
func (t targets) order(values int) []*Value {
	s := &schedule{added: make([]bool, values), stamp: make([]int, values)}
	search := besides{needed: set{}, variables: set{}}
	for _, g := range t.gradients {
		search.needed.addComputed(g)
	}
	for _, v := range t.variables {
		search.variables[v] = true
	}
	for _, o := range t.outputs {
		if search.reads(o, set{}) {
			s.add(o)
		}
	}
	s.addCheapest(t.gradients)
	for _, o := range t.outputs {
		s.add(o)
	}
	return s.order
}

// set is a set of values.
type set map[*Value]bool

// add adds v and everything below it, as far down as below says.
func (s set) add(v *Value, below func(*Value) bool) {
	if s[v] {
		return
	}
	s[v] = true
	if below(v) {
		for _, in := range v.Inputs {
			s.add(in, below)
		}
	}
}

// addComputed adds v and everything that a run computes it from.
func (s set) addComputed(v *Value) { s.add(v, func(v *Value) bool { return !v.known() }) }

// besides finds instructions that no gradient needs.
type besides struct{ needed, variables set }

// reads reports whether an instruction that no gradient needs reads a variable
// to compute v.
func (b besides) reads(v *Value, seen set) bool {
	if b.needed[v] || seen[v] || v.known() {
		return false
	}
	seen[v] = true
	for _, in := range v.Inputs {
		if b.variables[in.Root] || b.reads(in, seen) {
			return true
		}
	}
	return false
}

// add appends v after everything that it is computed from.
func (s *schedule) add(v *Value) {
	if s.added[v.id] || v.known() {
		return
	}
	s.added[v.id] = true
	for _, in := range v.Inputs {
		s.add(in)
	}
	if v.computed() {
		s.order = append(s.order, v)
	}
}

// addCheapest appends all of vs. The next one is always the one with the least
// work left.
func (s *schedule) addCheapest(vs []*Value) {
	whole := map[*Value]float64{}
	for _, v := range vs {
		whole[v] = s.left(v)
	}
	vs = slices.Clone(vs)
	slices.SortStableFunc(vs, func(a, b *Value) int { return cmp.Compare(whole[a], whole[b]) })
	for len(vs) > 0 {
		best, least := 0, s.left(vs[0])
		for i := 1; i < min(candidates, len(vs)); i++ {
			if c := s.left(vs[i]); c < least {
				best, least = i, c
			}
		}
		s.add(vs[best])
		vs = slices.Delete(vs, best, best+1)
	}
}

// left estimates the work that is left to compute v.
func (s *schedule) left(v *Value) float64 {
	s.now++
	return s.visit(v)
}

func (s *schedule) visit(v *Value) float64 {
	if s.added[v.id] || v.known() || s.stamp[v.id] == s.now {
		return 0
	}
	s.stamp[v.id] = s.now
	total := 0.0
	if v.computed() {
		total = v.work()
	}
	for _, in := range v.Inputs {
		total += s.visit(in)
	}
	return total
}
