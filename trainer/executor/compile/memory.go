package compile

import (
	"cmp"
	"math"
	"slices"
)

// planner assigns every computed value a place in the arena (the one block of
// memory that computed values share). The slices have one entry per value of
// the graph, indexed by Value.id.
type planner struct {
	order    []*Value
	position []int    // index of the instruction that computes the value
	root     []*Value // the value whose memory this value uses; the value itself if it has memory of its own
	last     []int    // index of the last instruction that reads or writes the value's memory; set only for a value with memory of its own
	output   []bool   // true if the caller reads the value's memory after the run; set only for a value with memory of its own
}

// newPlanner finds the last instruction that uses the memory of each root (a
// value with memory of its own).
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

// joinInPlace lets elementwise operations overwrite an input that no later
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

// settle returns the value whose memory v uses in the end. It follows the
// chain from v to its root, that root's own root, and so on.
func (p *planner) settle(v *Value) *Value {
	if r := p.root[v.id]; r != v {
		p.root[v.id] = p.settle(r)
	}
	return p.root[v.id]
}

// place assigns each root (a computed value with memory of its own) an offset
// in the arena, and returns the arena's size in bytes. Two roots that are in
// use at the same time do not overlap. place starts with the largest root, and
// gives each root the lowest free offset.
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
		for _, other := range placed { // placed is sorted by offset
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
