package ps

import "sync/atomic"

// Tree is the fixed order in which the contributions 0..n-1 of a step are
// added: the range [lo, hi) is the sum of its halves [lo, mid) and [mid, hi)
// with mid = lo + (hi-lo)/2. The order depends on n alone, not on who comes
// first, so the sum has the same bits every time.
type Tree struct {
	leaves []int    // by contribution: index of the vertex above it
	inner  []vertex // parents before children; empty when n is 1
}

type vertex struct {
	lo, mid int // adds the sum that begins at mid to the one that begins at lo
	parent  int // -1: the root
}

// NewTree returns the tree over n contributions, at least 1.
func NewTree(n int) *Tree {
	t := &Tree{leaves: make([]int, n)}
	t.grow(0, n, -1)
	return t
}

func (t *Tree) grow(lo, hi, parent int) {
	if hi-lo == 1 {
		t.leaves[lo] = parent
		return
	}
	mid, self := lo+(hi-lo)/2, len(t.inner)
	t.inner = append(t.inner, vertex{lo, mid, parent})
	t.grow(lo, mid, self)
	t.grow(mid, hi, self)
}

// Count is the number of contributions.
func (t *Tree) Count() int { return len(t.leaves) }

// progress is one sum on its way through a tree, for any number of
// goroutines. Each addition is made by the goroutine that brought the later
// of its two operands.
type progress struct {
	tree    *Tree
	waiting []atomic.Bool // by inner vertex: one operand is there
}

func newProgress(t *Tree) progress {
	return progress{tree: t, waiting: make([]atomic.Bool, len(t.inner))}
}

// arrive notes contribution i and makes every addition that it completes. It
// reports true to the one goroutine that completes the whole sum, which then
// begins at 0; the progress is ready for the next sum.
func (p progress) arrive(i int, add func(into, from int)) bool {
	for at := p.tree.leaves[i]; at >= 0; at = p.tree.inner[at].parent {
		if p.waiting[at].CompareAndSwap(false, true) {
			return false
		}
		p.waiting[at].Store(false)
		add(p.tree.inner[at].lo, p.tree.inner[at].mid)
	}
	return true
}
