//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package blas

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// rowMajor is CBLAS_ORDER's CblasRowMajor.
const rowMajor int32 = 101

// cblas is gonum with the products that Gorgonia calls done by a loaded
// library. A call that the library could not be trusted with (a wrong shape, a
// slice that is too short, an empty matrix) goes to gonum, which panics with
// its own message or does the little there is to do: so the two cannot differ
// in what they accept.
//
// Dot products, outer products and small products with a vector stay with
// gonum: entering C costs more than it saves.
//
// purego keeps every pointer passed alive until the call returns, and the
// library keeps none.
type cblas struct {
	gonum.Implementation
	sgemm func(order, tA, tB, m, n, k int32, alpha float32, a *float32, lda int32, b *float32, ldb int32, beta float32, c *float32, ldc int32)
	dgemm func(order, tA, tB, m, n, k int32, alpha float64, a *float64, lda int32, b *float64, ldb int32, beta float64, c *float64, ldc int32)
	sgemv func(order, tA, m, n int32, alpha float32, a *float32, lda int32, x *float32, incX int32, beta float32, y *float32, incY int32)
	dgemv func(order, tA, m, n int32, alpha float64, a *float64, lda int32, x *float64, incX int32, beta float64, y *float64, incY int32)
}

// bind looks up the functions. Integers are passed as 32 bits and arrive sign
// extended in 64, so a library built with 64-bit integers reads the same.
func bind(handle uintptr) (*cblas, error) {
	c := new(cblas)
	for symbol, fn := range map[string]any{
		"cblas_sgemm": &c.sgemm, "cblas_dgemm": &c.dgemm,
		"cblas_sgemv": &c.sgemv, "cblas_dgemv": &c.dgemv,
	} {
		if !register(fn, handle, symbol) {
			return nil, fmt.Errorf("it has no function %s: not a CBLAS library", symbol)
		}
	}
	return c, nil
}

// Sgemm computes C = alpha op(A) op(B) + beta C for row-major matrices.
func (l *cblas) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	if !gemmFits(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc) {
		l.Implementation.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	l.sgemm(rowMajor, code(tA), code(tB), int32(m), int32(n), int32(k),
		alpha, &a[0], int32(lda), &b[0], int32(ldb), beta, &c[0], int32(ldc))
}

// Dgemm is Sgemm in double precision.
func (l *cblas) Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	if !gemmFits(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc) {
		l.Implementation.Dgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	l.dgemm(rowMajor, code(tA), code(tB), int32(m), int32(n), int32(k),
		alpha, &a[0], int32(lda), &b[0], int32(ldb), beta, &c[0], int32(ldc))
}

// Sgemv computes y = alpha op(A) x + beta y.
func (l *cblas) Sgemv(tA blas.Transpose, m, n int, alpha float32, a []float32, lda int, x []float32, incX int, beta float32, y []float32, incY int) {
	if !gemvFits(tA, m, n, len(a), lda, len(x), incX, len(y), incY) || alpha == 0 {
		l.Implementation.Sgemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY)
		return
	}
	l.sgemv(rowMajor, code(tA), int32(m), int32(n),
		alpha, &a[0], int32(lda), &x[0], int32(incX), beta, &y[0], int32(incY))
}

// Dgemv is Sgemv in double precision.
func (l *cblas) Dgemv(tA blas.Transpose, m, n int, alpha float64, a []float64, lda int, x []float64, incX int, beta float64, y []float64, incY int) {
	if !gemvFits(tA, m, n, len(a), lda, len(x), incX, len(y), incY) || alpha == 0 {
		l.Implementation.Dgemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY)
		return
	}
	l.dgemv(rowMajor, code(tA), int32(m), int32(n),
		alpha, &a[0], int32(lda), &x[0], int32(incX), beta, &y[0], int32(incY))
}

// smallest is how many elements a matrix must have for its product with a
// vector to be worth entering C, which takes about a microsecond (see
// BenchmarkVector).
const smallest = 1 << 15

// code is CBLAS_TRANSPOSE's value. On real numbers a conjugate is nothing.
func code(t blas.Transpose) int32 {
	if t == blas.NoTrans {
		return 111
	}
	return 112
}

// gemmFits reports whether a product may go to C: nothing empty, and every
// element that C will touch inside its slice.
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

// gemvFits does the same for a product with a vector, and turns down those that
// gonum is quicker at.
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

// matrixFits bounds every factor before it multiplies, so nothing overflows.
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

// selfCheck computes one product whose result is known, onto a matrix of NaN
// that a beta of zero must overwrite: what Gorgonia hands over is not zeroed.
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
	l.sgemv(rowMajor, code(blas.NoTrans), 2, 3, 1, &a[0], 3, &b[0], 1, 0, &y[0], 1)
	if y[0] != 7 || y[1] != 16 {
		return errors.New("it computes a wrong product of matrix and vector")
	}
	return nil
}
