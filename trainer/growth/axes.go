package growth

import (
	"slices"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/executor/vertex"
	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/tensor"
)

// own returns the growth of an operation that package nn/ops defines. rows
// says how the operation treats the rows of a batch.
func (c call) own(rows ops.RowEffect) Growth {
	for i, g := range c.in {
		if g.Degree != 0 || g.axes > 1 || g.axes != 0 && i > 0 && rows == ops.RowsOfFirst {
			return c.unknown(" of rows that are not the first axis")
		}
	}
	switch {
	case rows == ops.RowsMixed:
		return c.unknown("")
	case rows == ops.RowsAdded:
		return Growth{Degree: 1}
	case rows == ops.RowsAveraged:
		return Growth{}
	}
	return Growth{axes: 1}
}

// within returns the growth of a function that works along one axis, such as a
// softmax. The growth is unknown if the rows of the batch lie along that axis.
func (c call) within(axis int) Growth {
	if c.in[0].has(axis) || c.in[0].Degree != 0 {
		return c.unknown(" along the rows")
	}
	return c.in[0]
}

// softmax returns the growth of a softmax. Over an axis of batch rows, the
// values add up to 1: with k times as many rows, each is 1/k as large (degree
// -1).
func (c call) softmax() Growth {
	axis := int(c.f[1].Int())
	if axis < 0 {
		axis = c.last()
	}
	if log := c.f[2].Bool(); log || c.in[0].Degree != 0 || !c.in[0].has(axis) {
		return c.within(axis)
	}
	return Growth{Degree: -1, axes: c.in[0].axes}
}

// image returns the growth (dependence on the batch size) of an operation on
// images of shape (batch, channels, height, width). The result grows as the
// input does. If the input is a sum over the batch, the growth is unknown.
func (c call) image() Growth {
	if c.in[0].Degree != 0 {
		return c.unknown(" of a sum over the rows")
	}
	return c.in[0]
}

// im2col returns the growth after im2col has moved the axis of the channels to
// the end.
func (c call) im2col() Growth {
	g := c.image()
	g.axes = g.moved(0, 0) | g.moved(1, 3) | g.moved(2, 1) | g.moved(3, 2)
	return g
}

// reduced returns the growth of a reduction along the axes listed in the
// operation's first field. For every listed axis along which the rows of the
// batch lie, the degree increases by the parameter each: by 1 for a sum, by 0
// for a maximum.
func (c call) reduced(each int) Growth {
	g, along := Growth{Degree: c.in[0].Degree}, vertex.Ints(c.f[0])
	to := 0
	for axis := range c.below[0].Shape() {
		switch {
		case !slices.Contains(along, axis):
			g.axes |= c.in[0].moved(axis, to)
			to++
		case c.in[0].has(axis):
			g.Degree += each
		}
	}
	return g
}

// size returns the growth of the length of an axis. The degree is 1 if the
// rows of the batch lie along the axis, and 0 if not.
func (c call) size() Growth {
	if c.in[0].has(int(c.f[0].Int())) {
		return Growth{Degree: 1}
	}
	return Growth{}
}

// repeat returns the growth of an operation that repeats its first input; its
// second input is the number of repetitions.
func (c call) repeat() Growth {
	g := c.in[0]
	if c.in[1].Degree != 0 {
		g.axes |= 1 << vertex.Ints(c.f[0])[0]
	}
	return g
}

// slice returns the growth of a slice: a range of an axis keeps the axis, a
// single index removes the axis.
func (c call) slice() Growth {
	if len(c.n.Shape()) == len(c.below[0].Shape()) {
		return c.in[0]
	}
	taken := c
	taken.f = c.f[1:] // drop the field before the axis: reduced expects the axis in its first field
	return taken.reduced(0)
}

func (c call) transpose() Growth {
	g := Growth{Degree: c.in[0].Degree}
	for to, from := range vertex.Ints(c.f[0]) {
		g.axes |= c.in[0].moved(from, to)
	}
	return g
}

// reshape returns the growth of a reshape. If the input has the batch's rows
// along some axis, reshape looks for the matching axis of the result. If all
// lengths up to the axis are unchanged, it is the same axis. Otherwise it is
// an axis with the same number of elements before it. So an axis that merges
// rows and time steps counts as an axis of rows.
func (c call) reshape() Growth {
	g, from, to := Growth{Degree: c.in[0].Degree}, c.below[0].Shape(), c.n.Shape()
	for axis := range from {
		if !c.in[0].has(axis) {
			continue
		}
		at := c.reshaped(from, to, axis)
		if at < 0 {
			return c.unknown(" of the rows")
		}
		g.axes |= 1 << at
	}
	return g
}

// reshaped compares the shapes before (from) and after (to) a reshape. It
// returns the axis of to that corresponds to an axis of from, or -1 if there
// is none. If the batch has one row, several axes of length 1 may match, and
// reshaped returns the first.
func (c call) reshaped(from, to tensor.Shape, axis int) int {
	if len(to) > axis && slices.Equal(from[:axis+1], to[:axis+1]) {
		return axis
	}
	before := memory.Elements(from[:axis])
	for at := range to {
		if memory.Elements(to[:at]) == before && to[at]%c.batch == 0 {
			return at
		}
	}
	return -1
}

// product returns the growth of a product of vectors, matrices, or batches of
// matrices.
func (c call) product() Growth {
	const dot, outer = 2, 3
	a, b := c.in[0], c.in[1]
	g := Growth{Degree: a.Degree + b.Degree}
	switch c.f[0].Uint() {
	case dot:
		return g.contracted(a.has(0) || b.has(0))
	case outer:
		g.axes = a.moved(0, 0) | b.moved(0, 1)
		return g
	}
	n := len(c.below[0].Shape())
	row, column, rowB, columnB := n-2, n-1, n-2, n-1
	if transA := c.f[1].Bool(); transA {
		row, column = column, row
	}
	if transB := c.f[2].Bool(); transB {
		rowB, columnB = columnB, rowB
	}
	batch := uint64(1)<<(n-2) - 1
	g.axes = (a.axes|b.axes)&batch | a.moved(row, n-2) | b.moved(columnB, n-1)
	return g.contracted(a.has(column) || b.has(rowB))
}

// contracted returns the growth g of a product after it has also summed over
// an axis. If the rows of the batch lie along this axis (rows is true), the
// degree is higher by 1.
func (g Growth) contracted(rows bool) Growth {
	if rows {
		g.Degree++
	}
	return g
}

func (c call) tensordot() Growth {
	a, b := vertex.Ints(c.f[0]), vertex.Ints(c.f[1])
	g, to := Growth{Degree: c.in[0].Degree + c.in[1].Degree}, 0
	for i := range a {
		g = g.contracted(c.in[0].has(a[i]) || c.in[1].has(b[i]))
	}
	for side, along := range [][]int{a, b} {
		for axis := range c.below[side].Shape() {
			if !slices.Contains(along, axis) {
				g.axes |= c.in[side].moved(axis, to)
				to++
			}
		}
	}
	return g
}

// byIndices returns the growth of a lookup of elements by index. The indices
// replace one axis of the first input. The rows of the batch lie along this
// axis of the result if they lie along the first axis of the indices.
func (c call) byIndices() Growth {
	g, axis := c.in[0], int(c.f[0].Int())
	g.axes &^= 1 << axis
	g.axes |= c.in[1].moved(0, axis)
	return g
}
