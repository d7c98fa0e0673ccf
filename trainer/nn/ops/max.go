package ops

import (
	"fmt"
	"math"
	"slices"

	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Max returns the largest element of x along the given axes, which the result
// does not have. Without axes, it is the largest element of all of x. If there
// is a NaN, the result is NaN. If several elements are the largest, only the
// first gets the gradient; Gorgonia's Max gives the whole gradient to each of
// them.
func Max(x *gorgonia.Node, axes ...int) (*gorgonia.Node, error) {
	what := fmt.Sprintf("max along %v", axes)
	dtype, err := floats(what, x)
	if err != nil {
		return nil, err
	}
	s := x.Shape()
	if slices.ContainsFunc(axes, func(axis int) bool { return axis < 0 || axis >= len(s) }) {
		return nil, fmt.Errorf("%s: x is %s", what, told(x))
	}
	kept, n := tensor.Shape{}, 1
	p := reduced{shape: s, strides: make([]int, len(s)), index: make([]int, len(s))}
	for axis := len(s) - 1; axis >= 0; axis-- {
		if len(axes) > 0 && !slices.Contains(axes, axis) {
			p.strides[axis] = n
			n *= s[axis]
			kept = slices.Insert(kept, 0, s[axis])
		}
	}
	p.taken = make([]bool, n)
	diff := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		d := newOp("gradient of "+what, dtype, s, choose(dtype, maximumGradient[float32], maximumGradient[float64], p))
		return one(d.apply(in[0], y, dy))
	}
	o := newOp(what, dtype, kept, choose(dtype, maximum[float32], maximum[float64], p)).with(diff, 0)
	if slices.Contains(axes, 0) {
		o.makes(RowsAveraged) // treated as a mean and not as a sum: the maximum does not grow with the number of rows as a sum does
	}
	return o.apply(x)
}

// reduced maps each element of a value to the element of the result that it
// contributes to.
type reduced struct {
	shape, strides []int
	index          []int  // scratch memory: index of the current element, one number per axis
	taken          []bool // scratch memory: elements of the result whose gradient has been assigned to an input element
}

// each calls f for the first n elements of the value: i is the index of the
// element, and to is the index of the result's element to which it
// contributes.
func (p reduced) each(n int, f func(i, to int)) {
	clear(p.index)
	for i := range n {
		f(i, memory.Offset(p.index, p.strides))
		memory.Advance(p.index, p.shape)
	}
}

func maximum[T float](p reduced, y []T, in [][]T) {
	for i := range y {
		y[i] = T(math.Inf(-1))
	}
	p.each(len(in[0]), func(i, to int) {
		if v := in[0][i]; v > y[to] || v != v {
			y[to] = v
		}
	})
}

func maximumGradient[T float](p reduced, dx []T, in [][]T) {
	x, y, dy := in[0], in[1], in[2]
	clear(p.taken)
	p.each(len(x), func(i, to int) {
		dx[i] = 0
		if !p.taken[to] && (x[i] == y[to] || x[i] != x[i]) {
			dx[i], p.taken[to] = dy[to], true
		}
	})
}
