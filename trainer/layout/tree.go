package layout

// Tree is the fixed order in which the leaves 0..n-1 of a step are added: the
// range [lo, hi) is the sum of its halves [lo, mid) and [mid, hi) with
// mid = lo + (hi-lo)/2. The order depends on n alone, not on who computes
// which leaf or who comes first, so a sum has the same bits every time.
//
// Its vertices are numbered: leaf i is i, the others follow from n on,
// parents before children. A vertex that lacks one of its two operands is the
// other one; it is never added to zero, which would turn -0 into 0.
type Tree struct {
	leaves   int
	vertices []vertex
}

type vertex struct {
	lo, hi      int
	left, right int // -1: a leaf
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
