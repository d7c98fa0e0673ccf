package layout

import (
	"slices"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/policy"
)

// Tree is the fixed order in which the leaves 0..n-1 of a step are added: the
// range [lo, hi) is the sum of its halves [lo, mid) and [mid, hi) with
// mid = lo + (hi-lo)/2. The order depends on n alone, not on who computes
// which leaf or who comes first, so a sum has the same bits every time.
//
// Its vertices are numbered: leaf i is i, the others follow from n on,
// parents before children. A vertex that lacks one of its two operands is the
// other one; it is never added to zero, which would turn -0 into 0.
type Tree struct {
	leaves   int      // number of leaves
	vertices []vertex // by number
}

type vertex struct {
	lo, hi      int // the leaves that the vertex is the sum of: [lo, hi)
	left, right int // numbers of the two operands; -1 in a leaf
}

// NewTree returns the tree over n leaves, at least 1.
func NewTree(n int) *Tree {
	t := &Tree{leaves: n, vertices: make([]vertex, n, 2*n-1)}
	t.grow(0, n)
	return t
}

func (t *Tree) grow(lo, hi int) int {
	if hi-lo == 1 {
		t.vertices[lo] = vertex{lo, hi, -1, -1}
		return lo
	}
	self := len(t.vertices)
	t.vertices = append(t.vertices, vertex{})
	mid := lo + (hi-lo)/2
	left := t.grow(lo, mid)
	right := t.grow(mid, hi)
	t.vertices[self] = vertex{lo, hi, left, right}
	return self
}

// Root is the vertex of the whole sum.
func (t *Tree) Root() int {
	if t.leaves == 1 {
		return 0
	}
	return t.leaves
}

// Below returns the virtual workers whose sum a vertex is.
func (t *Tree) Below(v int) Range { return Range{t.vertices[v].lo, t.vertices[v].hi} }

// Parts returns the maximal whole subtrees inside [lo, hi), from left to
// right: at most about 2 log2 n vertices.
func (t *Tree) Parts(lo, hi int) []int { return t.parts(nil, t.Root(), lo, hi) }

func (t *Tree) parts(list []int, v, lo, hi int) []int {
	at := t.vertices[v]
	switch {
	case lo <= at.lo && at.hi <= hi:
		return append(list, v)
	case at.hi <= lo || hi <= at.lo:
		return list
	}
	return t.parts(t.parts(list, at.left, lo, hi), at.right, lo, hi)
}

// Plan says how the sums of some vertices of a tree, the inputs, grow to the
// sums of others, the outputs. Everything else is absent. It numbers places
// for sums: first the inputs, then one per addition.
type Plan struct {
	Inputs  []int // by place: the vertex whose sum comes in
	Outputs []int // vertices whose sums are wanted and have an input below them
	left    []int // by addition: places of its operands
	right   []int
	above   []int // by place: the addition that takes its sum; -1 means none
	output  []int // by place: index in Outputs; -1 means that the place is no output
}

// NewPlan needs inputs of which none is below another, and the same of outputs;
// every input is to be below an output or one itself.
func NewPlan(t *Tree, inputs, outputs []int) *Plan {
	p := &Plan{Inputs: inputs}
	at := map[int]int{}
	for _, v := range inputs {
		at[v] = p.place()
	}
	for _, v := range outputs {
		if place := p.grow(t, at, v); place >= 0 {
			p.output[place] = len(p.Outputs)
			p.Outputs = append(p.Outputs, v)
		}
	}
	return p
}

func (p *Plan) place() int {
	p.above, p.output = append(p.above, -1), append(p.output, -1)
	return len(p.above) - 1
}

// grow returns the place of v's sum, -1 where nothing is below it.
func (p *Plan) grow(t *Tree, at map[int]int, v int) int {
	if place, ok := at[v]; ok {
		return place
	}
	if v < t.leaves {
		return -1
	}
	left, right := p.grow(t, at, t.vertices[v].left), p.grow(t, at, t.vertices[v].right)
	if left < 0 {
		return right
	}
	if right < 0 {
		return left
	}
	addition := len(p.left)
	p.left, p.right = append(p.left, left), append(p.right, right)
	p.above[left], p.above[right] = addition, addition
	return p.place()
}

// Reduction is one run of a plan after the other, for any number of goroutines.
// Each addition is made by the goroutine that brought the later of its two
// operands. The zero O, such as a nil interface, is an absent sum.
type Reduction[O comparable] struct {
	plan    *Plan
	add     func(into, from O) O // returns the sum, which may be into
	waiting []atomic.Bool        // by addition: one of its operands is there
	held    []O                  // by place: the sum that no addition has taken yet
}

func NewReduction[O comparable](p *Plan, add func(into, from O) O) *Reduction[O] {
	return &Reduction[O]{plan: p, add: add, waiting: make([]atomic.Bool, len(p.left)), held: make([]O, len(p.above))}
}

// Arrive notes an input and makes every addition that it completes. It
// reports an output, done, to the one goroutine that completes it.
func (p *Reduction[O]) Arrive(input int, x O) (output int, sum O, done bool) {
	place := input
	p.held[place] = x
	for {
		addition := p.plan.above[place]
		if addition < 0 {
			return p.plan.output[place], p.take(place), true
		}
		if p.waiting[addition].CompareAndSwap(false, true) {
			return 0, sum, false
		}
		p.waiting[addition].Store(false) // ready for the next run
		place = len(p.plan.Inputs) + addition
		switch left, right := p.take(p.plan.left[addition]), p.take(p.plan.right[addition]); {
		case left == sum: // absent
			p.held[place] = right
		case right == sum:
			p.held[place] = left
		default:
			p.held[place] = p.add(left, right)
		}
	}
}

// take empties a place.
func (p *Reduction[O]) take(place int) (sum O) {
	sum, p.held[place] = p.held[place], sum
	return sum
}

// Roster says who brings what to a holder.
type Roster struct {
	Tree         *Tree
	Contributors []Contributor // ascending by virtual workers
	Of           []int         // by rank: index in Contributors; -1 means that another worker of its host contributes
	Groups       []Range       // ranges of Contributors whose gradients are added
	Plans        []*Plan       // by group
}

// Contributor is a worker that sends sums to holders: of its own virtual workers, or of
// those of its host.
type Contributor struct {
	Rank           int
	VirtualWorkers Range // the virtual workers whose gradients it brings
	Parts          []int // vertices whose sums this worker sends: the largest subtrees of its virtual workers, from left to right
	Group          int   // index in Roster.Groups
	First          int   // place of the first of Parts among the inputs of the group's plan
}

// in is c in a group, with its first part at a place among the group's inputs.
func (c Contributor) in(group, first int) Contributor {
	c.Group, c.First = group, first
	return c
}

// NewRoster says who brings what to a holder.
func NewRoster(holder cluster.Task, d *Declaration) *Roster {
	r := newRoster(NewTree(d.VirtualWorkers), d)
	for rank := 0; rank < len(d.Workers); {
		host := Range{rank, rank + 1}
		if d.Aggregates(holder) {
			host = d.HostOf(rank)
		}
		r.add(rank, Range{d.Workers[host.Lo].Lo, d.Workers[host.Hi-1].Hi})
		rank = host.Hi
	}
	for _, members := range groups(d.Sync, len(r.Contributors)) {
		r.group(members, []int{r.Tree.Root()})
	}
	return r
}

// NewHostRoster is the roster of the workers of one host. Their sums grow to
// parts, those that the host brings.
func NewHostRoster(t *Tree, d *Declaration, ranks Range, parts []int) *Roster {
	r := newRoster(t, d)
	for rank := ranks.Lo; rank < ranks.Hi; rank++ {
		r.add(rank, d.Workers[rank])
	}
	r.group(Range{0, ranks.Len()}, parts)
	return r
}

func newRoster(t *Tree, d *Declaration) *Roster {
	return &Roster{Tree: t, Of: slices.Repeat([]int{-1}, len(d.Workers))}
}

// add adds a contributor of virtual workers.
func (r *Roster) add(rank int, v Range) {
	r.Of[rank] = len(r.Contributors)
	r.Contributors = append(r.Contributors, Contributor{Rank: rank, VirtualWorkers: v, Parts: r.Tree.Parts(v.Lo, v.Hi)})
}

// group makes contributors a group, whose sums grow to outputs.
func (r *Roster) group(members Range, outputs []int) {
	var inputs []int
	for i := members.Lo; i < members.Hi; i++ {
		r.Contributors[i] = r.Contributors[i].in(len(r.Groups), len(inputs))
		inputs = append(inputs, r.Contributors[i].Parts...)
	}
	r.Groups = append(r.Groups, members)
	r.Plans = append(r.Plans, NewPlan(r.Tree, inputs, outputs))
}

// groups cuts n contributors into the groups of a synchronisation mode.
func groups(s policy.Sync, n int) (all []Range) {
	count := s.Groups(n)
	for g := range count {
		all = append(all, Range{n * g / count, n * (g + 1) / count})
	}
	return all
}

// Contributor returns the contributor that rank is, nil: it is none.
func (r *Roster) Contributor(rank int) *Contributor {
	if i := r.Of[rank]; i >= 0 {
		return &r.Contributors[i]
	}
	return nil
}

// Input returns the place of a part among the inputs of c's group.
func (c *Contributor) Input(part uint32) (int, bool) {
	for i, v := range c.Parts {
		if uint64(part) == uint64(v) {
			return c.First + i, true
		}
	}
	return 0, false
}
