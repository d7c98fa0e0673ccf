package layout

import "sync/atomic"

// Plan says how the sums of some vertices of a tree, the inputs, grow to the
// sums of others, the outputs. Everything else is absent. It numbers places
// for sums: first the inputs, then one per addition.
type Plan struct {
	Inputs  []int // vertices, by place
	Outputs []int // vertices that somebody waits for and that an input is below
	left    []int // by addition: place of its operands
	right   []int
	above   []int // by place: the addition that takes it, -1: none
	output  []int // by place: index in outputs, -1: none
}

// NewPlan wants inputs of which none is below another, and likewise outputs;
// every input is to be below an output or one itself.
func NewPlan(t *Tree, inputs, outputs []int) *Plan {
	p := &Plan{Inputs: inputs}
	at := map[int]int{}
	for i, v := range inputs {
		at[v] = p.place()
		if at[v] != i {
			panic("owner: places out of order")
		}
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

// Operand is a sum on its way, or the lack of one.
type Operand[O any] struct {
	Present bool
	Sum     O
}

// Reduction is one run of a plan after the other, for any number of goroutines.
// Each addition is made by the goroutine that brought the later of its two
// operands.
type Reduction[O any] struct {
	plan    *Plan
	add     func(into, from O) O // returns the sum, which may be into
	waiting []atomic.Bool        // by addition: one operand is there
	held    []Operand[O]         // by place
}

func NewReduction[O any](p *Plan, add func(into, from O) O) *Reduction[O] {
	return &Reduction[O]{plan: p, add: add, waiting: make([]atomic.Bool, len(p.left)), held: make([]Operand[O], len(p.above))}
}

// Arrive notes an input and makes every addition that it completes. It
// reports an output, done, to the one goroutine that completes it.
func (p *Reduction[O]) Arrive(input int, x Operand[O]) (output int, sum Operand[O], done bool) {
	place := input
	p.held[place] = x
	for {
		addition := p.plan.above[place]
		if addition < 0 {
			sum, p.held[place] = p.held[place], Operand[O]{}
			return p.plan.output[place], sum, true
		}
		if p.waiting[addition].CompareAndSwap(false, true) {
			return 0, sum, false
		}
		p.waiting[addition].Store(false) // ready for the next run
		place = len(p.plan.Inputs) + addition
		p.held[place] = p.join(p.plan.left[addition], p.plan.right[addition])
	}
}

// join adds two places and empties them.
func (p *Reduction[O]) join(left, right int) Operand[O] {
	a, b := p.held[left], p.held[right]
	p.held[left], p.held[right] = Operand[O]{}, Operand[O]{}
	switch {
	case !a.Present:
		return b
	case !b.Present:
		return a
	}
	return Operand[O]{true, p.add(a.Sum, b.Sum)}
}
