package layout

import (
	"slices"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/policy"
)

// Tree is the fixed order in which the gradients of a step are added. Its
// leaves 0..n-1 are the gradients of the virtual workers. The sum over the
// range [lo, hi) is the sum over [lo, mid) plus the sum over [mid, hi), with
// mid = lo + (hi-lo)/2. This order depends only on n, and not on which worker
// computes or sends a gradient first, so a sum always has the same bits.
//
// Leaf i is the vertex with number i. The inner vertices have the numbers from
// n on, parents before their children. If one child of a vertex has no sum,
// the sum of the vertex is that of the other child. Adding zero instead would
// turn -0 into 0.
type Tree struct {
	leaves   int      // number of leaves
	vertices []vertex // all vertices; the index is the number of the vertex
}

type vertex struct {
	lo, hi      int // range [lo, hi) of the leaves whose gradients are in the vertex's sum
	left, right int // numbers of the two children, whose sums are added; -1 in a leaf
}

// NewTree returns the tree with n leaves; n must be at least 1.
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

// Root returns the vertex whose sum covers all leaves.
func (t *Tree) Root() int {
	if t.leaves == 1 {
		return 0
	}
	return t.leaves
}

// Below returns the range of virtual workers (leaves) whose gradients are in
// the sum of vertex v.
func (t *Tree) Below(v int) Range { return Range{t.vertices[v].lo, t.vertices[v].hi} }

// Parts returns the vertices of the largest subtrees that lie completely in
// the range [lo, hi) of leaves, from left to right. There are at most about 2
// log2 n of them.
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

// Plan lists the additions that compute the sums of output vertices of a Tree
// from the sums of input vertices. Leaves that are below no input count as
// absent. A plan numbers the sums that are stored, and calls the number of a
// sum its place: first the inputs, then the results of the additions.
type Plan struct {
	Inputs  []int // indexed by place: input vertex, whose sum the caller provides
	Outputs []int // requested output vertices, without those that have no input below them
	left    []int // indexed by addition: places of its left and right operands
	right   []int
	above   []int // indexed by place: the addition that has the sum at this place as an operand; -1 means none
	output  []int // indexed by place: index in Outputs of the vertex whose sum it is; -1 if the vertex is no output
}

// NewPlan returns the plan that computes outputs from inputs. No input may be
// below another input, and no output below another output. Every input must be
// an output or below an output.
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

// grow returns the place of the sum of vertex v, and adds to the plan the
// additions that compute this sum. It returns -1 if no input is below v.
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

// Reduction executes a plan, once per step. Several goroutines may provide
// inputs at the same time. The goroutine that provides the later operand of an
// addition performs the addition. The zero value of O, for example a nil
// interface, stands for an absent sum.
type Reduction[O comparable] struct {
	plan    *Plan
	add     func(into, from O) O // returns the sum into + from; may change and return into
	waiting []atomic.Bool        // indexed by addition: true if exactly one of its two operands has arrived
	held    []O                  // indexed by place: sum that no addition has used yet
}

func NewReduction[O comparable](p *Plan, add func(into, from O) O) *Reduction[O] {
	return &Reduction[O]{plan: p, add: add, waiting: make([]atomic.Bool, len(p.left)), held: make([]O, len(p.above))}
}

// Arrive stores the sum x of an input and performs all additions whose
// operands are now complete. input is the index in Plan.Inputs. If the
// additions complete an output, Arrive returns its index in Plan.Outputs, its
// sum and true.
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
		p.waiting[addition].Store(false) // reset the flag for the next step
		place = len(p.plan.Inputs) + addition
		switch left, right := p.take(p.plan.left[addition]), p.take(p.plan.right[addition]); {
		case left == sum: // the left operand is absent, so the sum is the right operand
			p.held[place] = right
		case right == sum:
			p.held[place] = left
		default:
			p.held[place] = p.add(left, right)
		}
	}
}

// take removes and returns the sum at a place.
func (p *Reduction[O]) take(place int) (sum O) {
	sum, p.held[place] = p.held[place], sum
	return sum
}

// Roster lists which workers send sums of gradients to a shard holder, and how
// the holder adds these sums.
type Roster struct {
	Tree         *Tree
	Contributors []Contributor // sorted by their ranges of virtual workers, in ascending order
	Of           []int         // indexed by rank: index in Contributors; -1 if another worker of the host sends this worker's gradients
	Groups       []Range       // ranges of indices in Contributors; the gradients of one group's contributors are added together
	Plans        []*Plan       // indexed by group: additions that add the sums of the group's contributors
}

// Contributor is a worker that sends sums of gradients to shard holders. They
// are the gradients of its own virtual workers or those of its whole host.
type Contributor struct {
	Rank           int
	VirtualWorkers Range // virtual workers whose gradients this worker sends
	Parts          []int // vertices of the Tree whose sums this worker sends, from left to right, see Tree.Parts
	Group          int   // index in Roster.Groups
	First          int   // place of Parts[0] among the inputs of the group's Plan; the other parts follow
}

// in returns a copy of c that belongs to the given group, an index in
// Roster.Groups. first is the place of c's first part among the inputs of the
// group's plan.
func (c Contributor) in(group, first int) Contributor {
	c.Group, c.First = group, first
	return c
}

// NewRoster returns the roster of a shard holder. It has one contributor per
// host if the holder receives sums of whole hosts, and one per worker if not.
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

// NewHostRoster returns the roster for the workers of one host, which have the
// given ranks. The host adds their gradients before it sends them. parts are
// the vertices of the tree whose sums it sends.
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

// add appends the worker with the given rank as a contributor. This worker
// sends the gradients of the virtual workers in v.
func (r *Roster) add(rank int, v Range) {
	r.Of[rank] = len(r.Contributors)
	r.Contributors = append(r.Contributors, Contributor{Rank: rank, VirtualWorkers: v, Parts: r.Tree.Parts(v.Lo, v.Hi)})
}

// group forms a group from the contributors with the indices in members. The
// group's plan adds up their sums. outputs are the vertices of the tree whose
// sums the plan computes.
func (r *Roster) group(members Range, outputs []int) {
	var inputs []int
	for i := members.Lo; i < members.Hi; i++ {
		r.Contributors[i] = r.Contributors[i].in(len(r.Groups), len(inputs))
		inputs = append(inputs, r.Contributors[i].Parts...)
	}
	r.Groups = append(r.Groups, members)
	r.Plans = append(r.Plans, NewPlan(r.Tree, inputs, outputs))
}

// groups divides n contributors (workers that send gradients) into groups of
// nearly equal size. The synchronisation mode s says how many groups there
// are.
func groups(s policy.Sync, n int) (all []Range) {
	count := s.Groups(n)
	for g := range count {
		all = append(all, Range{n * g / count, n * (g + 1) / count})
	}
	return all
}

// Contributor returns the contributor with the given rank. It returns nil if
// another worker of the host sends the gradients of the worker with this rank.
func (r *Roster) Contributor(rank int) *Contributor {
	if i := r.Of[rank]; i >= 0 {
		return &r.Contributors[i]
	}
	return nil
}

// Input returns the index of a part of c (a vertex of the Tree whose sum c
// sends) among the inputs of the group's plan. It returns false if c does not
// send that part.
func (c *Contributor) Input(part uint32) (int, bool) {
	for i, v := range c.Parts {
		if uint64(part) == uint64(v) {
			return c.First + i, true
		}
	}
	return 0, false
}
