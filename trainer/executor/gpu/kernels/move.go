package kernels

import (
	"fmt"
	"math"
	"slices"
)

// mostDimensions is the largest number of dimensions that strided kernels
// support, after join has merged dimensions.
const mostDimensions = 5

// dimensions is a shape, and the strides of some operands over this shape. The
// function join makes dimensions with as few dimensions as possible.
type dimensions struct {
	shape []int
	by    [][]int // strides of each operand, one for each dimension
}

// join drops dimensions of size 1. It merges two neighbouring dimensions if
// one loop with a constant stride can run over both of them in every operand.
// It returns an error if more than mostDimensions remain.
func join(what string, shape []int, strides ...[]int) (dimensions, error) {
	d := dimensions{by: make([][]int, len(strides))}
	for i, n := range shape {
		if n == 1 {
			continue
		}
		last, even := len(d.shape)-1, len(d.shape) > 0
		for k, s := range strides {
			even = even && d.by[k][last] == s[i]*n
		}
		if even {
			d.shape[last] *= n
		} else {
			d.shape = append(d.shape, n)
		}
		for k, s := range strides {
			if even {
				d.by[k][last] = s[i]
			} else {
				d.by[k] = append(d.by[k], s[i])
			}
		}
	}
	if len(d.shape) > mostDimensions {
		return d, fmt.Errorf("%s on a GPU: %d dimensions that cannot be joined, want at most %d", what, len(d.shape), mostDimensions)
	}
	return d, nil
}

// sizes returns the kernel parameters n1 to n4: the sizes of all dimensions
// except the first.
func (d dimensions) sizes() (all []any) {
	for _, n := range leading(d.shape, 1)[1:] {
		all = append(all, n)
	}
	return all
}

// strides returns the kernel parameters s0 to s4 of an operand: its strides.
func (d dimensions) strides(operand int) (all []any) {
	for _, s := range leading(d.by[operand], 0) {
		all = append(all, s)
	}
	return all
}

// leading prepends copies of fill to x until x has mostDimensions elements.
func leading(x []int, fill int) []int {
	return append(slices.Repeat([]int{fill}, mostDimensions-len(x)), x...)
}

// rowMajor returns the strides of a row-major tensor of the given shape.
func rowMajor(shape []int) []int {
	s, n := make([]int, len(shape)), 1
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= shape[i]
	}
	return s
}

// strided copies the elements of a tensor of the given shape. Kernel "read"
// reads a by strides, beginning at element first, and writes out without gaps.
// Kernel "write" reads a without gaps and writes out by strides.
func strided(t Type, kernel, what string, shape, strides []int, first int) (Operation, error) {
	n := elements(shape...)
	if err := check(what, n, first); err != nil {
		return Operation{}, err
	}
	d, err := join(what, shape, strides)
	if err != nil {
		return Operation{}, err
	}
	scalars := append(append([]any{n}, d.sizes()...), first)
	return over("move", kernel+"_"+t.word(), []string{"out", "a"}, n, append(scalars, d.strides(0)...)...), nil
}

// Fill sets n elements of out to x.
func Fill(t Type, x float64, n int) (Operation, error) {
	var word any = math.Float32bits(float32(x))
	if t == Float64 {
		word = math.Float64bits(x)
	}
	return over("move", "fill_"+t.word(), []string{"out"}, n, word, n), check("fill", n)
}

// At returns an operation that copies one element of a, the one at index, to
// out.
func At(t Type, index int) (Operation, error) {
	return strided(t, "read", "element", []int{1}, []int{1}, index)
}

// Repeat copies each piece of a several times in a row. a consists of outer
// pieces of inner elements each, and times is the number of copies.
func Repeat(t Type, outer, inner, times int) (Operation, error) {
	return strided(t, "read", "repeat", []int{outer, times, inner}, []int{inner, 0, 1}, 0)
}

// Transpose permutes the dimensions of a: dimension i of out is dimension
// axes[i] of a.
func Transpose(t Type, shape, axes []int) (Operation, error) {
	n := elements(shape...)
	if err := check("transpose", n); err != nil {
		return Operation{}, err
	}
	to, strides := make([]int, len(axes)), make([]int, len(axes))
	for i, s := range rowMajor(shape) {
		at := slices.Index(axes, i)
		to[at], strides[at] = shape[i], s
	}
	d, err := join("transpose", to, strides)
	if err != nil {
		return Operation{}, err
	}
	if count, rows, columns, ok := d.matrices(); ok && n > 0 {
		o := Operation{Operands: []string{"out", "a"}}
		grid := [3]uint32{uint32(divide(columns, 32)), uint32(divide(rows, 32)), uint32(count)}
		if grid[1] < 1<<16 && grid[2] < 1<<16 {
			return o.then(launch("move", "transpose_"+t.word(), grid, blockThreads, all(2), rows, columns)), nil
		}
	}
	return strided(t, "read", "transpose", to, strides, 0)
}

// matrices reports whether the copy described by d is a transposition of count
// matrices that lie one after the other. rows and columns are the size of each
// matrix before the transposition.
func (d dimensions) matrices() (count, rows, columns int, ok bool) {
	shape, by := d.shape, d.by[0]
	if len(shape) == 2 {
		shape, by = append([]int{1}, shape...), append([]int{shape[0] * shape[1]}, by...)
	}
	if len(shape) != 3 {
		return 0, 0, 0, false
	}
	columns, rows = shape[1], shape[2]
	return shape[0], rows, columns, by[1] == 1 && by[2] == columns && by[0] == rows*columns
}

// slice returns the shape, the strides and the first element of a slice: the
// indices start, start+step, ... below end along an axis.
func slice(shape []int, axis, start, end, step int) (part, strides []int, first int, err error) {
	if axis < 0 || axis >= len(shape) || start < 0 || end > shape[axis] || start > end || step < 1 {
		return nil, nil, 0, fmt.Errorf("slice %d:%d:%d of axis %d on a GPU: the shape is %v", start, end, step, axis, shape)
	}
	part, strides = slices.Clone(shape), rowMajor(shape)
	part[axis] = divide(end-start, step)
	first = start * strides[axis]
	strides[axis] *= step
	return part, strides, first, nil
}

// Slice copies the part of a at the indices start, start+step, ... below end
// along an axis.
func Slice(t Type, shape []int, axis, start, end, step int) (Operation, error) {
	part, strides, first, err := slice(shape, axis, start, end, step)
	if err != nil {
		return Operation{}, err
	}
	return strided(t, "read", "slice", part, strides, first)
}

// SliceGradient writes a to a slice of out, and zeros to all other elements of
// out. shape is the shape of out.
func SliceGradient(t Type, shape []int, axis, start, end, step int) (Operation, error) {
	part, strides, first, err := slice(shape, axis, start, end, step)
	if err != nil {
		return Operation{}, err
	}
	o, err := Fill(t, 0, elements(shape...))
	if err != nil {
		return Operation{}, err
	}
	put, err := strided(t, "write", "gradient of slice", part, strides, first)
	put.Launches = append(o.Launches, put.Launches...)
	return put, err
}

// Concat joins operands of shape (outer, middle[i], inner) along the middle
// dimension.
func Concat(t Type, outer, inner int, middle ...int) (Operation, error) {
	o, total, at := Operation{Operands: []string{"out"}}, 0, 0
	for _, m := range middle {
		total += m
	}
	if err := check("concat", elements(outer, total, inner)); err != nil {
		return Operation{}, err
	}
	for i, m := range middle {
		part, err := strided(t, "write", "concat", []int{outer, m, inner}, []int{total * inner, inner, 1}, at*inner)
		if err != nil {
			return Operation{}, err
		}
		for _, l := range part.Launches {
			l.Operands = []int{0, i + 1}
			o = o.then(l)
		}
		o.Operands = append(o.Operands, fmt.Sprintf("part %d", i))
		at += m
	}
	return o, nil
}
