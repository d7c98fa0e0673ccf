// Package matrix multiplies matrices that lie in larger memory.
//
//	x := matrix.Whole(numbers, 4)                // rows of 4 numbers
//	odd := matrix.Strided(numbers[4:], 8)        // every second row of x
//	matrix.Mul(m, n, 4, odd, w.T(), 0, matrix.Whole(y, n)) // y = odd * transposed w
//
// Mul is one call of the BLAS library that Gorgonia uses.
package matrix

import (
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gorgonia.org/gorgonia"
)

// Float are the types of numbers.
type Float interface{ float32 | float64 }

// Matrix is a matrix in row-major memory.
type Matrix[T Float] struct {
	data       []T
	stride     int // numbers from the beginning of one row to that of the next
	transposed bool
}

// Whole returns a matrix without gaps between its rows.
func Whole[T Float](x []T, columns int) Matrix[T] { return Strided(x, columns) }

// Strided returns a matrix whose rows begin stride numbers apart. With a stride
// of 0 all rows are the same.
func Strided[T Float](x []T, stride int) Matrix[T] { return Matrix[T]{data: x, stride: stride} }

// T returns the transposed matrix, in the same memory.
func (a Matrix[T]) T() Matrix[T] {
	a.transposed = !a.transposed
	return a
}

// Row returns the first n numbers of row i, before any transposition.
func (a Matrix[T]) Row(i, n int) []T { return a.data[i*a.stride:][:n] }

func (a Matrix[T]) flag() blas.Transpose {
	if a.transposed {
		return blas.Trans
	}
	return blas.NoTrans
}

// Mul computes c = a b + beta c. The product has m rows and n columns; each of
// its numbers is a sum of k terms.
func Mul[T Float](m, n, k int, a, b Matrix[T], beta T, c Matrix[T]) {
	switch to := any(&c.data).(type) {
	case *[]float32:
		gorgonia.WhichBLAS().Sgemm(a.flag(), b.flag(), m, n, k, 1, As[float32](a.data), a.stride, As[float32](b.data), b.stride, float32(beta), *to, c.stride)
	case *[]float64:
		gorgonia.WhichBLAS().Dgemm(a.flag(), b.flag(), m, n, k, 1, As[float64](a.data), a.stride, As[float64](b.data), b.stride, float64(beta), *to, c.stride)
	}
}

// As returns x as a slice of To. The caller knows that From is the same type.
func As[To, From Float](x []From) []To {
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// Fill writes the same row into each of the rows of x.
func Fill[T Float](x, row []T) {
	for ; len(x) > 0; x = x[len(row):] {
		copy(x, row)
	}
}

// SumRows writes the sum of the rows of x to out. The rows are as long as out
// and scratch; the sums are added in scratch.
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
