//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package blas

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"gonum.org/v1/gonum/blas"
)

// rowMajor is CBLAS_ORDER's CblasRowMajor.
const rowMajor int32 = 101

// code is the value of CBLAS_TRANSPOSE. For real numbers, conjugation changes
// nothing.
func code(t blas.Transpose) int32 {
	if t == blas.NoTrans {
		return 111
	}
	return 112
}

// bindCBLAS binds the functions that every CBLAS library has. The precision is
// s or d. The functions take numbers by value, which needs purego's general way
// to call: about a microsecond and a dozen allocations per call.
//
// Integers are passed as 32 bits and arrive sign-extended to 64, so a library
// built with 64-bit integers reads the same numbers.
func bindCBLAS[T float32 | float64](handle uintptr, precision string) (products[T], error) {
	var gemm func(order, tA, tB, m, n, k int32, alpha T, a *T, lda int32, b *T, ldb int32, beta T, c *T, ldc int32)
	var gemv func(order, tA, m, n int32, alpha T, a *T, lda int32, x *T, incX int32, beta T, y *T, incY int32)
	for name, fn := range map[string]any{"gemm": &gemm, "gemv": &gemv} {
		if symbol := "cblas_" + precision + name; !register(fn, handle, symbol) {
			return products[T]{}, fmt.Errorf("it has no function %s: not a CBLAS library", symbol)
		}
	}
	return products[T]{
		gemm: func(tA, tB blas.Transpose, m, n, k int, alpha T, a *T, lda int, b *T, ldb int, beta T, c *T, ldc int) {
			gemm(rowMajor, code(tA), code(tB), int32(m), int32(n), int32(k), alpha, a, int32(lda), b, int32(ldb), beta, c, int32(ldc))
		},
		gemv: func(tA blas.Transpose, m, n int, alpha T, a *T, lda int, x *T, incX int, beta T, y *T, incY int) {
			gemv(rowMajor, code(tA), int32(m), int32(n), alpha, a, int32(lda), x, int32(incX), beta, y, int32(incY))
		},
	}, nil
}

// fortran calls a library's Fortran functions. They take every argument by
// address, so purego.SyscallN suffices and the addresses can be prepared: a
// call allocates nothing.
//
// Fortran stores matrices column by column, so it sees each of ours transposed.
// The call asks for C' = op(B)' op(A)': the operands change places, as in the
// CBLAS functions of most libraries.
type fortran[T float32 | float64] struct {
	gemmAt, gemvAt       uintptr   // addresses of the library's functions
	gemmCalls, gemvCalls sync.Pool // prepared arguments, of type *call[T]
}

// call holds the arguments of one call and their addresses. A call and
// everything that it points to are on the heap. The garbage collector does not
// move them, and keeps them as long as the call is used. (It may move a
// goroutine's stack.)
//
// Sizes have 64 bits. Both processors are little-endian, so a library that
// reads 32 bits finds the same number.
type call[T float32 | float64] struct {
	left, right          byte // 'N' or 'T': transposition of the first and of the second operand; gemv has no right
	m, n, k              int64
	stride1, stride2     int64 // of the first and second operand, in elements
	strideOut            int64 // of out, in elements
	alpha, beta          T
	first, second, out   *T
	addresses            [15]uintptr
	at1, at2, atOut, all int // indices of the operands in addresses; number of addresses in use
}

// bindFortran binds the functions. It reports false if the library lacks one.
func bindFortran[T float32 | float64](handle uintptr, precision string) (products[T], bool) {
	gemm, err := purego.Dlsym(handle, precision+"gemm_")
	if err != nil {
		return products[T]{}, false
	}
	gemv, err := purego.Dlsym(handle, precision+"gemv_")
	if err != nil {
		return products[T]{}, false
	}
	f := &fortran[T]{gemmAt: gemm, gemvAt: gemv}
	f.gemmCalls.New = func() any { return newGemmCall[T]() }
	f.gemvCalls.New = func() any { return newGemvCall[T]() }
	return products[T]{gemm: f.gemm, gemv: f.gemv}, true
}

// character is the length of a letter argument. Fortran passes it as a hidden
// argument after the visible ones.
const character = 1

// newGemmCall prepares the arguments of xGEMM in their order.
func newGemmCall[T float32 | float64]() *call[T] {
	x := &call[T]{at1: 6, at2: 8, atOut: 11, all: 15}
	x.addresses = [15]uintptr{
		address(&x.left), address(&x.right), address(&x.m), address(&x.n), address(&x.k),
		address(&x.alpha), 6: 0, 7: address(&x.stride1), 8: 0, 9: address(&x.stride2),
		10: address(&x.beta), 11: 0, 12: address(&x.strideOut), 13: character, 14: character,
	}
	return x
}

// newGemvCall prepares the arguments of xGEMV in their order.
func newGemvCall[T float32 | float64]() *call[T] {
	x := &call[T]{at1: 4, at2: 6, atOut: 9, all: 12}
	x.addresses = [15]uintptr{
		address(&x.left), address(&x.m), address(&x.n),
		address(&x.alpha), 4: 0, 5: address(&x.stride1), 6: 0, 7: address(&x.stride2),
		8: address(&x.beta), 9: 0, 10: address(&x.strideOut), 11: character,
	}
	return x
}

func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

func (f *fortran[T]) gemm(tA, tB blas.Transpose, m, n, k int, alpha T, a *T, lda int, b *T, ldb int, beta T, c *T, ldc int) {
	x := f.gemmCalls.Get().(*call[T])
	x.set(letter(tB), letter(tA), n, m, k, alpha, beta)
	x.operands(b, ldb, a, lda, c, ldc)
	x.enter(f.gemmAt)
	f.gemmCalls.Put(x)
}

// gemv asks for the product with the opposite transposition.
func (f *fortran[T]) gemv(tA blas.Transpose, m, n int, alpha T, a *T, lda int, v *T, incV int, beta T, y *T, incY int) {
	x := f.gemvCalls.Get().(*call[T])
	x.set('T'+'N'-letter(tA), 0, n, m, 0, alpha, beta)
	x.operands(a, lda, v, incV, y, incY)
	x.enter(f.gemvAt)
	f.gemvCalls.Put(x)
}

// set sets everything but the operands.
func (x *call[T]) set(left, right byte, m, n, k int, alpha, beta T) {
	x.left, x.right, x.m, x.n, x.k = left, right, int64(m), int64(n), int64(k)
	x.alpha, x.beta = alpha, beta
}

// operands sets the operands, each with its stride.
func (x *call[T]) operands(first *T, stride1 int, second *T, stride2 int, out *T, strideOut int) {
	x.first, x.second, x.out = first, second, out
	x.stride1, x.stride2, x.strideOut = int64(stride1), int64(stride2), int64(strideOut)
}

// enter calls the function. It passes the prepared slice, because a list of
// arguments would be allocated for each call.
func (x *call[T]) enter(function uintptr) {
	x.addresses[x.at1], x.addresses[x.at2], x.addresses[x.atOut] = address(x.first), address(x.second), address(x.out)
	purego.SyscallN(function, x.addresses[:x.all]...)
	runtime.KeepAlive(x)                     // and everything that it points to
	x.first, x.second, x.out = nil, nil, nil // the pool must not keep matrices alive
}

// letter is Fortran's name of a transposition. For real numbers, conjugation
// changes nothing.
func letter(t blas.Transpose) byte {
	if t == blas.NoTrans {
		return 'N'
	}
	return 'T'
}
