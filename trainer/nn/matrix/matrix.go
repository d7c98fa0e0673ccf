// Package matrix multiplies matrices that are parts of larger slices.
//
//	x := matrix.Whole(numbers, 4)                // rows of 4 numbers
//	odd := matrix.Strided(numbers[4:], 8)        // every second row of x
//	matrix.Mul(m, n, 4, odd, w.T(), 0, matrix.Whole(y, n)) // y = odd * transposed w
//
// Mul makes one call to the BLAS library that Gorgonia uses.
package matrix

import (
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gorgonia.org/gorgonia"
)

// Float lists the types of the elements of a matrix.
type Float interface{ float32 | float64 }

// Matrix is a view of a slice as a matrix in row-major order.
type Matrix[T Float] struct {
	data       []T
	stride     int // distance between the beginnings of two consecutive rows, in elements
	transposed bool
}

// Whole returns a matrix with the given number of columns whose rows follow
// each other in x without gaps.
func Whole[T Float](x []T, columns int) Matrix[T] { return Strided(x, columns) }

// Strided returns a matrix whose rows begin stride elements apart in x. With a
// stride of 0, all rows are the same part of x.
func Strided[T Float](x []T, stride int) Matrix[T] { return Matrix[T]{data: x, stride: stride} }

// T returns the transposed matrix, as a view of the same memory.
func (a Matrix[T]) T() Matrix[T] {
	a.transposed = !a.transposed
	return a
}

// Row returns the first n elements of row i of the untransposed matrix.
func (a Matrix[T]) Row(i, n int) []T { return a.data[i*a.stride:][:n] }

func (a Matrix[T]) flag() blas.Transpose {
	if a.transposed {
		return blas.Trans
	}
	return blas.NoTrans
}

// Mul computes c = a b + beta c, where c has m rows and n columns. The inner
// dimension, the columns of a and rows of b, is k.
func Mul[T Float](m, n, k int, a, b Matrix[T], beta T, c Matrix[T]) {
	switch to := any(&c.data).(type) {
	case *[]float32:
		gorgonia.WhichBLAS().Sgemm(a.flag(), b.flag(), m, n, k, 1, As[float32](a.data), a.stride, As[float32](b.data), b.stride, float32(beta), *to, c.stride)
	case *[]float64:
		gorgonia.WhichBLAS().Dgemm(a.flag(), b.flag(), m, n, k, 1, As[float64](a.data), a.stride, As[float64](b.data), b.stride, float64(beta), *to, c.stride)
	}
}

// As returns x with element type To, without a copy. From and To must be the
// same type; a generic function uses As after checking that.
func As[To, From Float](x []From) []To {
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// Fill copies row into each of the rows of x, which are as long as row.
func Fill[T Float](x, row []T) {
	for ; len(x) > 0; x = x[len(row):] {
		copy(x, row)
	}
}

// SumRows writes the sum of the rows of x to out. The rows, out and scratch
// have the same length. SumRows accumulates the sums in scratch, in float64.
func SumRows[T Float](out, x []T, scratch []float64) {
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
