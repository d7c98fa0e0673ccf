//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package blas

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// cblas is gonum, except that a loaded library computes the products that
// Gorgonia needs. Calls with a wrong shape, a slice that is too short or an
// empty matrix go to gonum, which panics with its own message or returns at
// once. A cblas therefore accepts the same calls as gonum.
//
// Dot products, outer products and small products with a vector stay with
// gonum, because a call of C costs more time than the library saves.
type cblas struct {
	gonum.Implementation
	handle uintptr // handle under which the system's loader knows the library; needed by unload
	single products[float32]
	double products[float64]
}

// products holds the functions of a library for one element type, called
// either through CBLAS or through Fortran. The functions take row-major
// matrices whose sizes the caller has checked. They keep no pointer, and
// several goroutines may call them at once.
type products[T float32 | float64] struct {
	gemm gemmFunc[T]
	gemv gemvFunc[T]
}

type gemmFunc[T float32 | float64] func(tA, tB blas.Transpose, m, n, k int, alpha T, a *T, lda int, b *T, ldb int, beta T, c *T, ldc int)

type gemvFunc[T float32 | float64] func(tA blas.Transpose, m, n int, alpha T, a *T, lda int, x *T, incX int, beta T, y *T, incY int)

// bind looks up the library's CBLAS functions and returns a cblas that calls
// them.
func bind(handle uintptr) (*cblas, error) {
	single, err := bindCBLAS[float32](handle, "s")
	if err != nil {
		return nil, err
	}
	double, err := bindCBLAS[float64](handle, "d")
	if err != nil {
		return nil, err
	}
	return &cblas{handle: handle, single: single, double: double}, nil
}

// shorten switches to the library's Fortran functions, which are faster to
// call from Go, if they compute the same bits as the CBLAS functions.
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

// Dgemm computes C = alpha op(A) op(B) + beta C in double precision, as Sgemm
// does in single precision.
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

// Dgemv computes y = alpha op(A) x + beta y in double precision, as Sgemv does
// in single precision.
func (l *cblas) Dgemv(tA blas.Transpose, m, n int, alpha float64, a []float64, lda int, x []float64, incX int, beta float64, y []float64, incY int) {
	if !gemvFits(tA, m, n, len(a), lda, len(x), incX, len(y), incY) || alpha == 0 {
		l.Implementation.Dgemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY)
		return
	}
	l.double.gemv(tA, m, n, alpha, &a[0], lda, &x[0], incX, beta, &y[0], incY)
}

// smallest is the least number of elements of a matrix for which cblas
// computes a product with a vector in C. A call of a CBLAS function takes
// about a microsecond (see BenchmarkRoutes and BenchmarkVector). Fortran
// functions are faster to call and could have a lower bound. CBLAS and Fortran
// functions have the same bound, so that the choice between them does not
// decide whether gonum or the library rounds.
const smallest = 1 << 15

// gemmFits reports whether cblas may compute a matrix product in C: no operand
// is empty, and every element that C accesses is inside its slice.
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

// gemvFits reports whether cblas may compute a product of matrix and vector in
// C. It makes the checks of gemmFits, and also refuses products that gonum
// computes faster.
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

// matrixFits reports whether a matrix lies inside a slice of that length. It
// bounds rows and ld before it multiplies them, so that the product cannot
// overflow.
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

// selfCheck computes products with known results and returns an error if one
// is wrong. The memory for the results contains NaN at first. A library must
// overwrite the NaN if beta is 0, because Gorgonia does not clear memory.
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
	if err := checkProducts(l.single); err != nil {
		return fmt.Errorf("float32: %w", err)
	}
	if err := checkProducts(l.double); err != nil {
		return fmt.Errorf("float64: %w", err)
	}
	return nil
}

// checkProducts tests every kind of product with operands at every alignment
// within a cache line. The matrices contain small integers, so that the sums
// are exact in any order. Each worker runs this check when it starts, so the
// matrices are small.
func checkProducts[T float32 | float64](p products[T]) error {
	var at scattered[T]
	for _, s := range [][3]int{{17, 33, 129}, {8, 8, 1100}} {
		m, n, k := s[0], s[1], s[2]
		a, b := integers[T](m*k, 1), integers[T](k*n, 2)
		ofMatrices, ofVector := integerProduct(a, b, m, n, k), integerProduct(a, b[:k], m, 1, k)
		for _, tA := range straight {
			left := laidOut(tA, a, m, k)
			for _, tB := range straight {
				lda, ldb := strides(tA, tB, m, n, k)
				if !at.check(left, laidOut(tB, b, k, n), ofMatrices, func(a, b, c *T) {
					p.gemm(tA, tB, m, n, k, 1, a, lda, b, ldb, 0, c, n)
				}) {
					return fmt.Errorf("it computes a wrong product of %d x %d by %d x %d", m, k, k, n)
				}
			}
			rows, columns := m, k
			if tA != blas.NoTrans {
				rows, columns = k, m
			}
			if !at.check(left, b[:k], ofVector, func(a, x, y *T) {
				p.gemv(tA, rows, columns, 1, a, columns, x, 1, 0, y, 1)
			}) {
				return fmt.Errorf("it computes a wrong product of %d x %d by a vector", m, k)
			}
		}
	}
	return nil
}

var straight = []blas.Transpose{blas.NoTrans, blas.Trans}

// scattered is memory for the two operands and the result of a product. Its
// method check moves each of them through the alignments within a cache line.
type scattered[T float32 | float64] [3][]T

// check computes product repeatedly, until its two operands and its result
// have been at every alignment. It reports whether the result always equals
// want.
func (at *scattered[T]) check(first, second, want []T, product func(a, b, c *T)) bool {
	const line = 64
	steps := line / int(unsafe.Sizeof(T(0)))
	for step := range steps {
		a, b, c := at.put(0, step, first), at.put(1, (3*step+1)%steps, second), at.put(2, (5*step+2)%steps, want)
		for i := range c {
			c[i] = T(math.NaN())
		}
		product(&a[0], &b[0], &c[0])
		if !slices.Equal(c, want) {
			return false
		}
	}
	return true
}

// put copies values into the memory of operand i, beginning at element offset,
// and returns the copy.
func (at *scattered[T]) put(i, offset int, values []T) []T {
	if len(at[i]) < offset+len(values) {
		at[i] = make([]T, offset+2*len(values)+64)
	}
	into := at[i][offset:][:len(values)]
	copy(into, values)
	return into
}

// integers returns n integers from -4 to 3. Sums of a few thousand products of
// them are exact in float32.
func integers[T float32 | float64](n int, salt uint32) []T {
	s := sample[T](n, salt)
	for i, v := range s {
		s[i] = T(math.Floor(4 * float64(v)))
	}
	return s
}

// integerProduct returns the product of matrices a (m by k) and b (k by n),
// computed by a plain loop.
func integerProduct[T float32 | float64](a, b []T, m, n, k int) []T {
	c := make([]T, 0, m*n)
	for i := range m {
		for j := range n {
			var sum T
			for l, v := range a[i*k:][:k] {
				sum += v * b[l*n+j]
			}
			c = append(c, sum)
		}
	}
	return c
}

// laidOut returns the matrix that op turns into x (rows by columns). This is x
// itself, or its transpose if t is a transposition.
func laidOut[T float32 | float64](t blas.Transpose, x []T, rows, columns int) []T {
	if t == blas.NoTrans {
		return x
	}
	turned := make([]T, 0, len(x))
	for j := range columns {
		for i := range rows {
			turned = append(turned, x[i*columns+j])
		}
	}
	return turned
}

// strides returns the row strides of matrices A and B without gaps, for a
// product op(A) op(B) of m by k and k by n.
func strides(tA, tB blas.Transpose, m, n, k int) (lda, ldb int) {
	lda, ldb = k, n
	if tA != blas.NoTrans {
		lda = m
	}
	if tB != blas.NoTrans {
		ldb = k
	}
	return lda, ldb
}

// agreeShapes lists values of m, n and k with which agree compares CBLAS and
// Fortran functions. They are too small for a library to use threads. Some
// builds of OpenBLAS have a kernel for small products that only their CBLAS
// functions use. That kernel rounds differently if k is longer than a block of
// the ordinary kernel.
var agreeShapes = [][3]int{{1, 1, 1}, {3, 5, 7}, {1, 9, 700}, {9, 1, 700}, {8, 8, 1100}, {17, 33, 129}, {16, 32, 64}}

// agree reports whether p and q, two ways to call one library, compute the
// same bits.
func agree[T float32 | float64](p, q products[T]) bool {
	for _, s := range agreeShapes {
		for _, factors := range [][2]T{{1, 0}, {-0.5, 1}} {
			for _, tA := range straight {
				for _, tB := range straight {
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
	lda, ldb := strides(tA, tB, m, n, k)
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

// sample returns n numbers in [-1, 1) whose sum depends on the order of
// addition. They come from Knuth's multiplicative hash of the index and salt.
func sample[T float32 | float64](n int, salt uint32) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = T(int32((uint32(i)+salt<<16)*2654435769)) / (1 << 31)
	}
	return s
}

// sameBits reports whether a and b are equal, and treats 0 and -0 as
// different.
func sameBits[T float32 | float64](a, b []T) bool {
	for i, v := range a {
		if math.Float64bits(float64(v)) != math.Float64bits(float64(b[i])) {
			return false
		}
	}
	return true
}
