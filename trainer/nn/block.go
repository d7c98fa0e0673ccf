package nn

import (
	"gonum.org/v1/gonum/blas"
	"gorgonia.org/gorgonia"
)

// block is a matrix that lies in larger memory: from one row to the next are
// stride elements.
type block[T float] struct {
	data   []T
	stride int
	turned bool // taken transposed
}

// whole is a matrix without gaps.
func whole[T float](x []T, columns int) block[T] { return block[T]{data: x, stride: columns} }

// step is the t-th step of all sequences in memory (batch*steps, width).
func step[T float](x []T, t, steps, width int) block[T] {
	return block[T]{data: x[t*width:], stride: steps * width}
}

// t is the transposed matrix.
func (b block[T]) t() block[T] {
	b.turned = !b.turned
	return b
}

// row is the first n elements of the i-th row as it lies.
func (b block[T]) row(i, n int) []T { return b.data[i*b.stride:][:n] }

// mul is c = a·b + beta c, where the product is (m, n) and sums k terms.
func mul[T float](m, n, k int, a, b block[T], beta T, c block[T]) {
	ta, tb := blas.Transpose(blas.NoTrans), blas.Transpose(blas.NoTrans)
	if a.turned {
		ta = blas.Trans
	}
	if b.turned {
		tb = blas.Trans
	}
	switch to := any(&c.data).(type) {
	case *[]float32:
		gorgonia.WhichBLAS().Sgemm(ta, tb, m, n, k, 1, as[float32](a.data), a.stride, as[float32](b.data), b.stride, float32(beta), *to, c.stride)
	case *[]float64:
		gorgonia.WhichBLAS().Dgemm(ta, tb, m, n, k, 1, as[float64](a.data), a.stride, as[float64](b.data), b.stride, float64(beta), *to, c.stride)
	}
}

// fill writes the same row into each of the rows of x.
func fill[T float](x, row []T) {
	for ; len(x) > 0; x = x[len(row):] {
		copy(x, row)
	}
}

// sumRows writes the sum of the rows of x, which has as many columns as out.
// Sums are kept in scratch.
func sumRows[T float](out, x []T, scratch []float64) {
	clear(scratch)
	for ; len(x) > 0; x = x[len(out):] {
		for i, v := range x[:len(out)] {
			scratch[i] += float64(v)
		}
	}
	for i, v := range scratch {
		out[i] = T(v)
	}
}
