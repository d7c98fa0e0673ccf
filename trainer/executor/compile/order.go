package compile

import (
	"cmp"
	"slices"
)

// targets are the values that the program must compute for the caller.
type targets struct {
	gradients []*Value // gradients of the loss, in the order of Plan.Differentiate
	variables []*Value // leaves for which the gradients are computed, in the order of Plan.Differentiate
	outputs   []*Value // values that the caller reads: in the order of Plan.Outputs, then the loss if the plan has one
}

// all returns the gradients and the outputs in one slice.
func (t targets) all() []*Value { return slices.Concat(t.gradients, t.outputs) }

// candidates is the number of gradients that schedule.addCheapest compares to
// choose the next one. This limit keeps the compilation of a model with a
// thousand layers fast.
const candidates = 8

// schedule builds the list of instructions. Each instruction comes after the
// instructions that compute its inputs.
type schedule struct {
	order []*Value
	added []bool // indexed by Value.id: true if add has visited the value, so nothing is left to do for it
	stamp []int  // number of the last estimate (see now) that counted the value, indexed by Value.id
	now   int    // number of the current estimate: the number of calls of left so far
}

// order returns the values that instructions compute, inputs first. It puts
// the cheapest gradient first, which is usually that of the last layer, so
// that the caller gets gradients as early as possible.
//
// The caller may overwrite a variable after the run has reported its gradient
// as ready. Therefore an output comes before all gradients if it reads a
// variable through instructions that no gradient needs. All other outputs come
// after the gradients.
func (t targets) order(values int) []*Value {
	s := &schedule{added: make([]bool, values), stamp: make([]int, values)}
	search := outputSearch{needed: set{}, variables: set{}}
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

// add adds v to the set. If below(v) is true, it also adds v's inputs, and so
// on for their inputs.
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

// addComputed adds v and all values from which a run computes v. It stops at
// constants.
func (s set) addComputed(v *Value) { s.add(v, func(v *Value) bool { return !v.known() }) }

// outputSearch finds outputs that read a variable outside the computation of
// the gradients.
type outputSearch struct{ needed, variables set }

// reads reports whether v depends on a variable through an instruction that no
// gradient needs. seen holds the values that reads has already visited.
func (b outputSearch) reads(v *Value, seen set) bool {
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

// add appends v to the order, after all values that v is computed from.
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

// addCheapest appends all values of vs to the order. It repeatedly appends the
// value with the least work left.
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

// left estimates the work to compute v. Instructions that are already in the
// order count as no work.
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
