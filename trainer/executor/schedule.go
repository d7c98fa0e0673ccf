package executor

import (
	"cmp"
	"slices"
)

// wanted are the vertices a program is compiled for.
type wanted struct {
	gradients []*vertex // by Plan.Differentiate
	outputs   []*vertex // by Plan.Outputs, then the loss
	variables []*vertex // by Plan.Differentiate: the leaves
}

// order returns what is to be computed, inputs first. Gradients come as early
// as can be, the one that needs least first: that is the last layer's. An
// output that no gradient needs comes before them where it reads a variable
// that is differentiated by, since the variable may be overwritten once its
// gradient is announced, else after them.
func (w wanted) order() []*vertex {
	var s schedule
	needed := map[*vertex]bool{}
	for _, g := range w.gradients {
		mark(g, needed)
	}
	variable := map[*vertex]bool{}
	for _, v := range w.variables {
		variable[v] = true
	}
	for _, o := range w.outputs {
		if readsBesides(o, needed, variable, map[*vertex]bool{}) {
			s.add(o)
		}
	}
	s.addCheapest(w.gradients)
	for _, o := range w.outputs {
		s.add(o)
	}
	return s.order
}

// mark adds v and all that it is computed from to set.
func mark(v *vertex, set map[*vertex]bool) {
	if set[v] {
		return
	}
	set[v] = true
	if !v.constant {
		for _, in := range v.inputs {
			mark(in, set)
		}
	}
}

// readsBesides tells whether computing v takes an instruction that is not
// needed and reads a variable.
func readsBesides(v *vertex, needed, variable, seen map[*vertex]bool) bool {
	if needed[v] || seen[v] || v.constant {
		return false
	}
	seen[v] = true
	for _, in := range v.inputs {
		if variable[in.root] || readsBesides(in, needed, variable, seen) {
			return true
		}
	}
	return false
}

type schedule struct {
	order []*vertex
	stamp int // of the last estimate
}

// add appends v after what it is computed from.
func (s *schedule) add(v *vertex) {
	if v.scheduled || v.constant {
		return
	}
	v.scheduled = true
	for _, in := range v.inputs {
		s.add(in)
	}
	if v.computed() {
		v.position = len(s.order)
		s.order = append(s.order, v)
	}
}

// candidates bounds how many gradients are weighed against each other at a
// time, so that a thousand layers are ordered in a moment.
const candidates = 8

// addCheapest appends all of vs, next always the one with the least work left.
func (s *schedule) addCheapest(vs []*vertex) {
	whole := map[*vertex]float64{}
	for _, v := range vs {
		whole[v] = s.left(v)
	}
	vs = slices.Clone(vs)
	slices.SortStableFunc(vs, func(a, b *vertex) int { return cmp.Compare(whole[a], whole[b]) })
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
func (s *schedule) left(v *vertex) float64 {
	s.stamp++
	return s.visit(v)
}

func (s *schedule) visit(v *vertex) float64 {
	if v.scheduled || v.constant || v.stamp == s.stamp {
		return 0
	}
	v.stamp = s.stamp
	total := 0.0
	if v.computed() {
		total = v.work()
	}
	for _, in := range v.inputs {
		total += s.visit(in)
	}
	return total
}

// work is roughly how many operations v takes.
func (v *vertex) work() float64 {
	n := float64(v.size())
	for _, in := range v.inputs {
		n += float64(in.size())
	}
	if v.op.kind == kindMatMul || v.op.kind == kindBatchedMatMul {
		s := v.inputs[0].shape
		_, k := turned(s[len(s)-2:], v.op.transA)
		n += float64(v.size()) * float64(k) / 8
	}
	return n
}
