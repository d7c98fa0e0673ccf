package compile

import (
	"cmp"
	"math"
	"slices"
)

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
