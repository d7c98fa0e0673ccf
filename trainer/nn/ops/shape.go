package ops

import (
	"fmt"
	"math"
	"slices"

	gpu "github.com/plx-run/plx/trainer/executor/gpu/kernels"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Slice returns the elements of x with indices from <= i < to along an axis.
// It replaces Gorgonia's own slice operation, which treats two slices as equal
// if their bounds differ by 256.
func Slice(x *gorgonia.Node, axis, from, to int) (*gorgonia.Node, error) {
	what := fmt.Sprintf("slice %d:%d of axis %d", from, to, axis)
	dtype, err := floats(what, x)
	if err != nil {
		return nil, err
	}
	s := x.Shape()
	if axis < 0 || axis >= len(s) || from < 0 || to <= from || to > s[axis] {
		return nil, fmt.Errorf("%s: x is %s", what, told(x))
	}
	p := parts{outer: memory.Elements(s[:axis]), inner: memory.Elements(s[axis+1:]), all: s[axis], at: from, size: to - from}
	shape := s.Clone()
	shape[axis] = p.size
	return p.operation(what, dtype, shape).apply(x)
}

// parts describes a slice along one axis: the elements from index at to
// at+size-1 of the axis, whose length is all. outer is the product of the
// lengths of the axes before it, and inner is the product of those after it.
type parts struct{ outer, all, inner, at, size int }

func (p parts) operation(what string, dtype tensor.Dtype, shape tensor.Shape) *op {
	diff := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		d := newOp("gradient of "+what, dtype, in[0].Shape(), choose(dtype, put[float32], put[float64], p))
		return one(d.on(p.gpu(true)).apply(dy))
	}
	return newOp(what, dtype, shape, choose(dtype, take[float32], take[float64], p)).with(diff, 0).on(p.gpu(false))
}

func (p parts) gpu(gradient bool) *operation.GPU {
	cut := gpu.Slice
	if gradient {
		cut = gpu.SliceGradient
	}
	return by(func(t gpu.Type) (gpu.Operation, error) {
		return cut(t, []int{p.outer, p.all, p.inner}, 1, p.at, p.at+p.size, 1)
	})
}

// part adds an operation that takes consecutive elements of the vector x and
// gives them the given shape. The parameter at is the index of the first
// element.
func (b *adder) part(what string, x *gorgonia.Node, at int, shape ...int) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	p := parts{outer: 1, inner: 1, all: x.Shape()[0], at: at, size: memory.Elements(shape)}
	return b.apply(p.operation(fmt.Sprintf("%s at %d", what, at), x.Dtype(), shape), x)
}

func take[T float](p parts, out []T, in [][]T) {
	p.copy(func(whole, piece int) { copy(out[piece:piece+p.size*p.inner], in[0][whole:]) })
}

// put is the gradient of take: it copies the slice's gradient to the position
// of the slice in out, and sets the rest of out to zero.
func put[T float](p parts, out []T, in [][]T) {
	if p.size < p.all {
		clear(out)
	}
	p.copy(func(whole, piece int) { copy(out[whole:], in[0][piece:piece+p.size*p.inner]) })
}

// copy calls do for each contiguous run of the slice's elements. whole is the
// index of the run's first element in the whole tensor, and piece its index in
// the slice.
func (p parts) copy(do func(whole, piece int)) {
	for i := range p.outer {
		do((i*p.all+p.at)*p.inner, i*p.size*p.inner)
	}
}

// Concat joins the xs along an axis. Their shapes must be equal in all other
// axes.
func Concat(axis int, xs ...*gorgonia.Node) (*gorgonia.Node, error) {
	what := fmt.Sprintf("concat of axis %d", axis)
	if len(xs) == 0 {
		return nil, fmt.Errorf("%s: nothing is given", what)
	}
	dtype, err := floats(what, xs...)
	if err != nil {
		return nil, err
	}
	shape := xs[0].Shape().Clone()
	if axis < 0 || axis >= len(shape) {
		return nil, fmt.Errorf("%s: x is %s", what, told(xs[0]))
	}
	shape[axis] = 0
	for _, x := range xs {
		s := x.Shape()
		if len(s) != len(shape) || !slices.Equal(s[:axis], shape[:axis]) || !slices.Equal(s[axis+1:], shape[axis+1:]) {
			return nil, fmt.Errorf("%s: %s and %s differ in another axis", what, told(xs[0]), told(x))
		}
		shape[axis] += s[axis]
	}
	all, at := make([]parts, len(xs)), 0
	var sizes []int
	for i, x := range xs {
		s := x.Shape()
		all[i] = parts{outer: memory.Elements(s[:axis]), inner: memory.Elements(s[axis+1:]), all: shape[axis], at: at, size: s[axis]}
		at += s[axis]
		sizes = append(sizes, s[axis])
	}
	diff := func(_ gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		gradients := make(gorgonia.Nodes, len(all))
		for i, p := range all {
			if gradients[i], err = Slice(dy, axis, p.at, p.at+p.size); err != nil {
				return nil, err
			}
		}
		return gradients, nil
	}
	o := newOp(what, dtype, shape, choose(dtype, concat[float32], concat[float64], all)).with(diff, 0)
	return o.on(by(func(t gpu.Type) (gpu.Operation, error) { return gpu.Concat(t, all[0].outer, all[0].inner, sizes...) })).apply(xs...)
}

func concat[T float](all []parts, out []T, in [][]T) {
	for i, p := range all {
		p.copy(func(whole, piece int) { copy(out[whole:], in[i][piece:piece+p.size*p.inner]) })
	}
}

// Flatten reshapes x to a matrix with one row for each element of the first
// axis.
func Flatten(x *gorgonia.Node) (*gorgonia.Node, error) {
	if _, err := floats("flatten", x); err != nil {
		return nil, err
	}
	s := x.Shape()
	if len(s) < 2 {
		return nil, fmt.Errorf("flatten: x is %s, want at least two axes", told(x))
	}
	all := memory.Elements(s)
	whole := parts{outer: 1, inner: 1, all: all, size: all}
	return whole.operation("flatten", x.Dtype(), tensor.Shape{s[0], all / s[0]}).apply(x)
}

// Rows returns the rows of a table (rows, width) with the numbers in index, a
// vector (n) of int, int32, int64, float32 or float64. The result has shape
// (n, width). If an index is not a row of the table, running the graph fails.
//
// The gradient has the size of the table and is zero in rows that no index
// names. If the table is a variable with no other use, training transfers only
// the rows that were used. For tables too large for one worker's memory, use
// trainer.Embedding.
func Rows(table, index *gorgonia.Node) (*gorgonia.Node, error) {
	dtype, err := floats("rows", table)
	if err != nil {
		return nil, err
	}
	if index == nil {
		return nil, fmt.Errorf("rows: index: %w", errNil)
	}
	s, read := table.Shape(), classOf[index.Dtype()]
	if len(s) != 2 || len(index.Shape()) != 1 || read == nil {
		return nil, fmt.Errorf("rows: the table is %s, the index %s %v: want (rows, width) and (n) whole numbers",
			told(table), told(index), index.Dtype())
	}
	g := gather{rows: s[0], width: s[1], n: index.Shape()[0], index: read}
	diff := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		d := newOp("gradient of rows", dtype, s, chooseValues(dtype, scatterRows[float32], scatterRows[float64], g))
		dx, err := d.apply(in[1], dy)
		return gorgonia.Nodes{dx, nil}, err
	}
	o := newOp("rows", dtype, tensor.Shape{g.n, g.width},
		chooseValues(dtype, gatherRows[float32], gatherRows[float64], g)).with(diff, 1)
	return o.apply(table, index)
}

// LooksUp reports whether o is an operation that Rows has added to a graph.
func LooksUp(o gorgonia.Op) bool {
	own, ok := o.(*op)
	return ok && own.what == "rows"
}

// gather holds the parameters of a lookup of n rows of a table.
type gather struct {
	rows, width, n int
	index          func(v gorgonia.Value, i int) float64
}

// at returns the row number that element i of index contains. It returns an
// error if the table has no such row.
func (g gather) at(index gorgonia.Value, i int) (int, error) {
	row := g.index(index, i)
	if !(row >= 0 && row < float64(g.rows)) || row != math.Trunc(row) {
		return 0, fmt.Errorf("index %d is %v, want a row from 0 to %d", i, row, g.rows-1)
	}
	return int(row), nil
}

func gatherRows[T float](g gather, out gorgonia.Value, in []gorgonia.Value) error {
	for i := range g.n {
		at, err := g.at(in[1], i)
		if err != nil {
			return err
		}
		copy(row(data[T](out), i, g.width), row(data[T](in[0]), at, g.width))
	}
	return nil
}

func scatterRows[T float](g gather, out gorgonia.Value, in []gorgonia.Value) error {
	clear(data[T](out))
	for i := range g.n {
		at, err := g.at(in[0], i)
		if err != nil {
			return err
		}
		to := row(data[T](out), at, g.width)
		for k, v := range row(data[T](in[1]), i, g.width) {
			to[k] += v
		}
	}
	return nil
}
