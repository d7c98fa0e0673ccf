package owner

import (
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// gather adds what a worker's own leaves contribute to one variable, along
// the tree, to the sums of the parts that the worker brings.
type gather interface {
	// memory is where the gradient of a leaf, counted from the worker's
	// first, belongs; nil for rows.
	memory(leaf int) []byte
	// arrive says that a leaf's contribution is there, or absent. done: the
	// sum of a part is thereby complete.
	arrive(leaf int, present bool) (part int, sum any, done bool)
}

func newGather(v Variable, p *plan) gather {
	switch {
	case v.Sparse != nil && v.Dtype == Float32:
		return newRowGather[float32](v, p)
	case v.Sparse != nil:
		return newRowGather[float64](v, p)
	case v.Dtype == Float32:
		return newDenseGather[float32](v, p)
	}
	return newDenseGather[float64](v, p)
}

type denseGather[T wire.Float] struct {
	*progress[[]T]
	leaves [][]T
}

func newDenseGather[T wire.Float](v Variable, p *plan) *denseGather[T] {
	g := &denseGather[T]{progress: newProgress(p, addDense[T])}
	for range p.inputs {
		g.leaves = append(g.leaves, make([]T, v.elements()))
	}
	return g
}

func (g *denseGather[T]) memory(leaf int) []byte { return wire.Bytes(g.leaves[leaf]) }

func (g *denseGather[T]) arrive(leaf int, present bool) (part int, sum any, done bool) {
	part, x, done := g.progress.arrive(leaf, operand[[]T]{present, g.leaves[leaf]})
	if !done || !x.present {
		return part, nil, done
	}
	return part, wire.Bytes(x.sum), true
}

type rowGather[T wire.Float] struct {
	*progress[sparse.Rows[T]]
	width  int
	leaves []sparse.Rows[T]
}

func newRowGather[T wire.Float](v Variable, p *plan) *rowGather[T] {
	return &rowGather[T]{progress: newProgress(p, mergeRows[T]), width: v.width(), leaves: make([]sparse.Rows[T], len(p.inputs))}
}

func (g *rowGather[T]) memory(int) []byte { return nil }

// set is what arrive adds for a leaf.
func (g *rowGather[T]) set(leaf int, index []int64, values []byte) {
	g.leaves[leaf] = sparse.Rows[T]{Index: index, Values: wire.Floats[T](values), Width: g.width}
}

func (g *rowGather[T]) check(leaf int, rows int) error {
	return g.leaves[leaf].Check(0, int64(rows), g.width)
}

func (g *rowGather[T]) arrive(leaf int, present bool) (part int, sum any, done bool) {
	part, x, done := g.progress.arrive(leaf, operand[sparse.Rows[T]]{present, g.leaves[leaf]})
	if !done || !x.present {
		return part, nil, done
	}
	return part, x.sum, true
}

// rowLeaves is a gather of rows.
type rowLeaves interface {
	gather
	set(leaf int, index []int64, values []byte)
	check(leaf int, rows int) error
}

// cutRows returns the rows of a piece from what a rowGather made.
func cutRows(sum any, p Piece) any {
	lo, hi := int64(p.Offset), int64(p.Offset+p.Count)
	switch r := sum.(type) {
	case sparse.Rows[float32]:
		return r.Cut(lo, hi)
	case sparse.Rows[float64]:
		return r.Cut(lo, hi)
	}
	panic("owner: no rows")
}

// appendRows encodes what cutRows returned; nothing where there is none.
func appendRows(into []byte, rows any) []byte {
	switch r := rows.(type) {
	case sparse.Rows[float32]:
		if len(r.Index) > 0 {
			return sparse.Append(into, r)
		}
	case sparse.Rows[float64]:
		if len(r.Index) > 0 {
			return sparse.Append(into, r)
		}
	}
	return into
}

// countRows is how many rows cutRows returned.
func countRows(rows any) int {
	switch r := rows.(type) {
	case sparse.Rows[float32]:
		return len(r.Index)
	case sparse.Rows[float64]:
		return len(r.Index)
	}
	return 0
}
