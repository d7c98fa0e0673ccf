package compile

import (
	"cmp"
	"math"
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

// planner finds a place in the arena for every computed value. Slices by id
// have an entry for every value of the graph.
type planner struct {
	order    []*Value
	position []int    // by id: the instruction that computes the value
	root     []*Value // by id: the value whose memory the value lies in
	last     []int    // by id of a root: the last instruction that reads or writes it
	output   []bool   // by id of a root: the value is read after the run
}

// newPlanner finds the last use of every root.
func newPlanner(values, order, outputs []*Value) *planner {
	n := len(values)
	p := &planner{order: order, position: make([]int, n), root: make([]*Value, n), last: make([]int, n), output: make([]bool, n)}
	for _, v := range values {
		p.root[v.id] = v.Root
	}
	for i, v := range order {
		p.position[v.id] = i
		p.last[v.Root.id] = max(p.last[v.Root.id], i)
		for _, in := range v.Inputs {
			p.last[in.Root.id] = max(p.last[in.Root.id], i)
		}
	}
	for _, o := range outputs {
		p.output[o.Root.id], p.last[o.Root.id] = true, math.MaxInt
	}
	return p
}

// joinInPlace lets elementwise operations write over an input that no later
// instruction needs.
func (p *planner) joinInPlace() {
	for _, v := range p.order {
		if v.isGradient() || p.output[v.id] || !v.Op.inPlace() {
			continue
		}
		for _, in := range v.Inputs {
			r := p.settle(in)
			if r.computed() && !p.output[r.id] && !r.isGradient() && p.last[r.id] == p.position[v.id] &&
				in.Length() == v.Length() && r.Length() == v.Length() {
				p.root[v.id], p.last[r.id] = r, p.last[v.id]
				break
			}
		}
	}
}

// settle returns the root of v's roots.
func (p *planner) settle(v *Value) *Value {
	if r := p.root[v.id]; r != v {
		p.root[v.id] = p.settle(r)
	}
	return p.root[v.id]
}

// place gives every computed root its place in one arena and returns the
// arena's size. Values whose lifetimes meet do not overlap. The largest are
// placed first, each as low as possible.
func (p *planner) place() int {
	var roots, placed []*Value
	for _, v := range p.order {
		if p.settle(v) == v && !v.isGradient() {
			roots = append(roots, v)
		}
	}
	slices.SortStableFunc(roots, func(a, b *Value) int { return cmp.Compare(b.Length(), a.Length()) })
	total := 0
	for _, v := range roots {
		offset := 0
		for _, other := range placed { // by offset
			if p.position[other.id] > p.last[v.id] || p.position[v.id] > p.last[other.id] {
				continue
			}
			if offset+v.padded() <= other.Place.Index {
				break
			}
			offset = max(offset, other.Place.Index+other.padded())
		}
		v.put(InArena, offset)
		at, _ := slices.BinarySearchFunc(placed, v, func(a, b *Value) int { return cmp.Compare(a.Place.Index, b.Place.Index) })
		placed = slices.Insert(placed, at, v)
		total = max(total, offset+v.padded())
	}
	return total
}
