//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package blas

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/blas"
)

// selfCheck computes a product with a known result. The result's memory holds
// NaN, which a beta of zero must overwrite, because Gorgonia does not clear
// memory.
func selfCheck(l *cblas) error {
	nan := float32(math.NaN())
	a := []float32{1, 2, 3, 4, 5, 6}
	b := []float32{1, 0, 2, 0, 1, 3}
	c := []float32{nan, nan, nan, nan}
	l.Sgemm(blas.NoTrans, blas.Trans, 2, 2, 3, 1, a, 3, b, 3, 0, c, 2)
	for i, want := range []float32{7, 11, 16, 23} {
		if c[i] != want {
			return errors.New("it computes a wrong matrix product")
		}
	}
	y := []float32{nan, nan}
	l.single.gemv(blas.NoTrans, 2, 3, 1, &a[0], 3, &b[0], 1, 0, &y[0], 1)
	if y[0] != 7 || y[1] != 16 {
		return errors.New("it computes a wrong product of matrix and vector")
	}
	return nil
}

// agreeShapes are values of m, n and k. They are too small for a library to use
// threads. Some builds of OpenBLAS have a kernel for small products that only
// the CBLAS functions use; it differs if k is longer than a block of the other
// kernel.
var agreeShapes = [][3]int{{1, 1, 1}, {3, 5, 7}, {1, 9, 700}, {9, 1, 700}, {8, 8, 1100}, {17, 33, 129}, {16, 32, 64}}

// agree reports whether two ways to call a library give the same bits. It also
// checks that both are right.
func agree[T float32 | float64](p, q products[T]) bool {
	for _, s := range agreeShapes {
		for _, factors := range [][2]T{{1, 0}, {-0.5, 1}} {
			for _, tA := range []blas.Transpose{blas.NoTrans, blas.Trans} {
				for _, tB := range []blas.Transpose{blas.NoTrans, blas.Trans} {
					if !agreeGemm(p, q, tA, tB, s, factors) {
						return false
					}
				}
				if !agreeGemv(p, q, tA, s[0]*s[1]/2+1, s[2]/8+1, factors) {
					return false
				}
			}
		}
	}
	return true
}

func agreeGemm[T float32 | float64](p, q products[T], tA, tB blas.Transpose, shape [3]int, factors [2]T) bool {
	m, n, k := shape[0], shape[1], shape[2]
	lda, ldb := k, n
	if tA != blas.NoTrans {
		lda = m
	}
	if tB != blas.NoTrans {
		ldb = k
	}
	a, b := sample[T](m*k, 1), sample[T](k*n, 2)
	c, d := sample[T](m*n, 3), sample[T](m*n, 3)
	p.gemm(tA, tB, m, n, k, factors[0], &a[0], lda, &b[0], ldb, factors[1], &c[0], n)
	q.gemm(tA, tB, m, n, k, factors[0], &a[0], lda, &b[0], ldb, factors[1], &d[0], n)
	return sameBits(c, d)
}

func agreeGemv[T float32 | float64](p, q products[T], tA blas.Transpose, m, n int, factors [2]T) bool {
	a, x := sample[T](m*n, 1), sample[T](max(m, n), 2)
	y, z := sample[T](max(m, n), 3), sample[T](max(m, n), 3)
	p.gemv(tA, m, n, factors[0], &a[0], n, &x[0], 1, factors[1], &y[0], 1)
	q.gemv(tA, m, n, factors[0], &a[0], n, &x[0], 1, factors[1], &z[0], 1)
	return sameBits(y, z)
}

// sample fills a matrix with numbers in [-1, 1) whose sums depend on their
// order. They come from Knuth's multiplicative hash.
func sample[T float32 | float64](n int, salt uint32) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = T(int32((uint32(i)+salt<<16)*2654435769)) / (1 << 31)
	}
	return s
}

// sameBits distinguishes 0 from -0.
func sameBits[T float32 | float64](a, b []T) bool {
	for i, v := range a {
		if math.Float64bits(float64(v)) != math.Float64bits(float64(b[i])) {
			return false
		}
	}
	return true
}
