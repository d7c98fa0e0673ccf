//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package blas

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// cblas is gonum with a loaded library for the products that Gorgonia calls.
// Calls with a wrong shape, a slice that is too short or an empty matrix go to
// gonum, which panics with its own message or returns at once. So both accept
// the same calls.
//
// Dot products, outer products and small products with a vector stay with
// gonum, because entering C costs more than it saves.
type cblas struct {
	gonum.Implementation
	single products[float32]
	double products[float64]
}

// products are one way to call a library. They take row-major matrices whose
// sizes have been checked, keep no pointer, and may be called side by side.
type products[T float32 | float64] struct {
	gemm gemmFunc[T]
	gemv gemvFunc[T]
}

type gemmFunc[T float32 | float64] func(tA, tB blas.Transpose, m, n, k int, alpha T, a *T, lda int, b *T, ldb int, beta T, c *T, ldc int)

type gemvFunc[T float32 | float64] func(tA blas.Transpose, m, n int, alpha T, a *T, lda int, x *T, incX int, beta T, y *T, incY int)

// bind looks up the CBLAS functions.
func bind(handle uintptr) (*cblas, error) {
	single, err := bindCBLAS[float32](handle, "s")
	if err != nil {
		return nil, err
	}
	double, err := bindCBLAS[float64](handle, "d")
	if err != nil {
		return nil, err
	}
	return &cblas{single: single, double: double}, nil
}

// shorten replaces functions by quicker ones that give the same bits.
func (l *cblas) shorten(handle uintptr) {
	if p, ok := bindFortran[float32](handle, "s"); ok && agree(p, l.single) {
		l.single = p
	}
	if p, ok := bindFortran[float64](handle, "d"); ok && agree(p, l.double) {
		l.double = p
	}
}

// Sgemm computes C = alpha op(A) op(B) + beta C for row-major matrices.
func (l *cblas) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	if !gemmFits(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc) {
		l.Implementation.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	l.single.gemm(tA, tB, m, n, k, alpha, &a[0], lda, &b[0], ldb, beta, &c[0], ldc)
}

// Dgemm is Sgemm in double precision.
func (l *cblas) Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	if !gemmFits(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc) {
		l.Implementation.Dgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	l.double.gemm(tA, tB, m, n, k, alpha, &a[0], lda, &b[0], ldb, beta, &c[0], ldc)
}

// Sgemv computes y = alpha op(A) x + beta y.
func (l *cblas) Sgemv(tA blas.Transpose, m, n int, alpha float32, a []float32, lda int, x []float32, incX int, beta float32, y []float32, incY int) {
	if !gemvFits(tA, m, n, len(a), lda, len(x), incX, len(y), incY) || alpha == 0 {
		l.Implementation.Sgemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY)
		return
	}
	l.single.gemv(tA, m, n, alpha, &a[0], lda, &x[0], incX, beta, &y[0], incY)
}

// Dgemv is Sgemv in double precision.
func (l *cblas) Dgemv(tA blas.Transpose, m, n int, alpha float64, a []float64, lda int, x []float64, incX int, beta float64, y []float64, incY int) {
	if !gemvFits(tA, m, n, len(a), lda, len(x), incX, len(y), incY) || alpha == 0 {
		l.Implementation.Dgemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY)
		return
	}
	l.double.gemv(tA, m, n, alpha, &a[0], lda, &x[0], incX, beta, &y[0], incY)
}

// smallest is the least number of elements of a matrix whose product with a
// vector goes to C. A call of a CBLAS function takes about a microsecond (see
// BenchmarkRoutes and BenchmarkVector). The quicker route could have a lower
// bound. Both have the same, so that the route never decides which library
// rounds.
const smallest = 1 << 15

// gemmFits reports whether a product may go to C: no operand is empty, and
// every element that C touches is inside its slice.
func gemmFits(tA, tB blas.Transpose, m, n, k, lenA, lda, lenB, ldb, lenC, ldc int) bool {
	rowsA, colsA := m, k
	if tA != blas.NoTrans {
		rowsA, colsA = k, m
	}
	rowsB, colsB := k, n
	if tB != blas.NoTrans {
		rowsB, colsB = n, k
	}
	return known(tA) && known(tB) &&
		matrixFits(rowsA, colsA, lda, lenA) &&
		matrixFits(rowsB, colsB, ldb, lenB) &&
		matrixFits(m, n, ldc, lenC)
}

// gemvFits is gemmFits for a product with a vector. It also refuses products
// that gonum computes faster.
func gemvFits(tA blas.Transpose, m, n, lenA, lda, lenX, incX, lenY, incY int) bool {
	nX, nY := n, m
	if tA != blas.NoTrans {
		nX, nY = m, n
	}
	return known(tA) && matrixFits(m, n, lda, lenA) && m*n >= smallest &&
		vectorFits(nX, incX, lenX) && vectorFits(nY, incY, lenY)
}

func known(t blas.Transpose) bool {
	return t == blas.NoTrans || t == blas.Trans || t == blas.ConjTrans
}

// matrixFits bounds every factor before it multiplies, so no product overflows.
func matrixFits(rows, cols, ld, length int) bool {
	return rows > 0 && cols > 0 && ld >= cols &&
		rows <= math.MaxInt32 && ld <= math.MaxInt32 &&
		(rows-1)*ld+cols <= length
}

func vectorFits(n, inc, length int) bool {
	if inc == 0 || inc > math.MaxInt32 || inc < -math.MaxInt32 {
		return false
	}
	return (n-1)*max(inc, -inc) < length
}
