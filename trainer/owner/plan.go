package owner

import "sync/atomic"

// plan says how the sums of some vertices of a tree, the inputs, grow to the
// sums of others, the outputs. Everything else is absent. It numbers places
// for sums: first the inputs, then one per addition.
type plan struct {
	inputs  []int // vertices, by place
	outputs []int // vertices that somebody waits for and that an input is below
	left    []int // by addition: place of its operands
	right   []int
	above   []int // by place: the addition that takes it, -1: none
	output  []int // by place: index in outputs, -1: none
}

// newPlan wants inputs of which none is below another, and likewise outputs;
// every input is to be below an output or one itself.
func newPlan(t *Tree, inputs, outputs []int) *plan {
	p := &plan{inputs: inputs}
	at := map[int]int{}
	for i, v := range inputs {
		at[v] = p.place()
		if at[v] != i {
			panic("owner: places out of order")
		}
	}
	for _, v := range outputs {
		if place := p.grow(t, at, v); place >= 0 {
			p.output[place] = len(p.outputs)
			p.outputs = append(p.outputs, v)
		}
	}
	return p
}

func (p *plan) place() int {
	p.above, p.output = append(p.above, -1), append(p.output, -1)
	return len(p.above) - 1
}

// grow returns the place of v's sum, -1 where nothing is below it.
func (p *plan) grow(t *Tree, at map[int]int, v int) int {
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

// operand is a sum on its way, or the lack of one.
type operand[O any] struct {
	present bool
	sum     O
}

// progress is one run of a plan after the other, for any number of goroutines.
// Each addition is made by the goroutine that brought the later of its two
// operands.
type progress[O any] struct {
	plan    *plan
	add     func(into, from O) O // returns the sum, which may be into
	waiting []atomic.Bool        // by addition: one operand is there
	held    []operand[O]         // by place
}

func newProgress[O any](p *plan, add func(into, from O) O) *progress[O] {
	return &progress[O]{plan: p, add: add, waiting: make([]atomic.Bool, len(p.left)), held: make([]operand[O], len(p.above))}
}

// arrive notes an input and makes every addition that it completes. It
// reports an output, done, to the one goroutine that completes it.
func (p *progress[O]) arrive(input int, x operand[O]) (output int, sum operand[O], done bool) {
	place := input
	p.held[place] = x
	for {
		addition := p.plan.above[place]
		if addition < 0 {
			sum, p.held[place] = p.held[place], operand[O]{}
			return p.plan.output[place], sum, true
		}
		if p.waiting[addition].CompareAndSwap(false, true) {
			return 0, sum, false
		}
		p.waiting[addition].Store(false) // ready for the next run
		place = len(p.plan.inputs) + addition
		p.held[place] = p.join(p.plan.left[addition], p.plan.right[addition])
	}
}

// join adds two places and empties them.
func (p *progress[O]) join(left, right int) operand[O] {
	a, b := p.held[left], p.held[right]
	p.held[left], p.held[right] = operand[O]{}, operand[O]{}
	switch {
	case !a.present:
		return b
	case !b.present:
		return a
	}
	return operand[O]{true, p.add(a.sum, b.sum)}
}
