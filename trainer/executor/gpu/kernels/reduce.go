package kernels

import (
	"fmt"
	"slices"
)

// reducedDimensions is a limit of sums and maxima, after join has merged
// dimensions: the largest number of dimensions that are reduced, and also of
// dimensions that remain.
const reducedDimensions = 3

// Sum adds the elements of a along axes; if axes is empty, it adds all of
// them. Sums are kept in double precision. If the result is small, long sums
// are divided into parts. The number of parts depends only on the shape.
func Sum(t Type, shape, axes []int) (Operation, error) { return reduction(t, "sum", shape, axes) }

// Max computes the largest element of a along axes; if axes is empty, of the
// whole tensor. The result is NaN if one of the elements is NaN.
func Max(t Type, shape, axes []int) (Operation, error) { return reduction(t, "max", shape, axes) }

func reduction(t Type, what string, shape, axes []int) (Operation, error) {
	if err := check(what, elements(shape...)); err != nil {
		return Operation{}, err
	}
	var sides [2]struct{ shape, strides []int } // sides[0] has the dimensions that remain, sides[1] the dimensions that are reduced
	strides, across := rowMajor(shape), false
	for i, n := range shape {
		side, reduced := &sides[0], len(axes) == 0 || slices.Contains(axes, i)
		if reduced {
			side = &sides[1]
		}
		side.shape, side.strides = append(side.shape, n), append(side.strides, strides[i])
		if n != 1 {
			across = !reduced
		}
	}
	kept, n := elements(sides[0].shape...), elements(sides[1].shape...)
	scalars := []any{}
	for i, count := range []int{kept, n} {
		d, err := join(what, sides[i].shape, sides[i].strides)
		if err == nil && len(d.shape) > reducedDimensions {
			err = fmt.Errorf("%s on a GPU: %d dimensions that cannot be joined, want at most %d", what, len(d.shape), reducedDimensions)
		}
		if err != nil {
			return Operation{}, err
		}
		cut := mostDimensions - reducedDimensions
		scalars = append(append(append(scalars, count), d.sizes()[cut:]...), d.strides(0)[cut:]...)
	}
	team := teamFor(n, across && kept > 1)
	o := Operation{Operands: []string{"out", "a"}}
	scalars = append(scalars, team.lanes, flag(team.across))
	if what == "max" {
		return o.then(launch("reduce", "max_"+t.suffix(), team.grid(kept), blockThreads, all(2), scalars...)), nil
	}
	parts, size := team.parts(kept, n)
	scalars = append(scalars, parts, size)
	o = o.then(launch("reduce", "sum_"+t.suffix(), team.grid(kept*parts), blockThreads, []int{0, 1, o.partial(parts)}, scalars...))
	return o.finish(t, kept, parts, 1), nil
}

// partial returns the index of the operand to which the kernel writes the sums
// of parts: the scratch memory. If there is only one part, it returns 0,
// because the kernel then writes no sums of parts.
func (o Operation) partial(parts int) int {
	if parts > 1 {
		return len(o.Operands)
	}
	return 0
}

// finish appends a launch that adds the sums of the parts of each row and
// divides the total by divisor. It appends nothing if there is only one part.
func (o Operation) finish(t Type, rows, parts int, divisor float64) Operation {
	if parts == 1 {
		return o
	}
	o.Scratch = 8 * rows * parts
	team := teamFor(parts, false)
	return o.then(launch("reduce", "finish_"+t.suffix(), team.grid(rows), blockThreads, []int{0, len(o.Operands)}, divisor, rows, parts, team.lanes))
}

// Dot computes the dot product of a and b, which have n elements each.
func Dot(t Type, n int) (Operation, error) {
	o := Operation{Operands: []string{"out", "a", "b"}}
	return o.then(launch("reduce", "dot_"+t.suffix(), [3]uint32{1, 1, 1}, blockThreads, all(3), n)), check("dot product", n)
}

// SumsOfSquares divides the n elements of g into pieces and computes
// optimizer.SumOfSquares of each piece. size is the number of elements of a
// piece; the last piece may be shorter. The result has one float64 for each
// piece.
func SumsOfSquares(t Type, n, size int) (Operation, error) {
	if size < 1 {
		return Operation{}, fmt.Errorf("sums of squares on a GPU: pieces of %d elements", size)
	}
	pieces := divide(n, size)
	o := Operation{Operands: []string{"out", "g"}}
	grid := team{lanes: 4}.grid(pieces)
	return o.then(launch("reduce", "squares_"+t.suffix(), grid, blockThreads, all(2), n, size, pieces)), check("sums of squares", n)
}
