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

// rowMajor is CblasRowMajor, a value of the C enumeration CBLAS_ORDER.
const rowMajor int32 = 101

// code returns the value of the C enumeration CBLAS_TRANSPOSE for t. For real
// numbers, ConjTrans is the same as Trans.
func code(t blas.Transpose) int32 {
	if t == blas.NoTrans {
		return 111
	}
	return 112
}

// bindCBLAS looks up the functions that every CBLAS library has. precision is
// "s" or "d", the letter in the functions' names. The functions take numbers
// by value. Purego needs its general calling method for that, which costs
// about a microsecond and a dozen allocations per call.
//
// Integers are passed as 32 bits and arrive sign-extended to 64 bits, so a
// library with 64-bit integers reads the same numbers.
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
// address. purego.SyscallN can therefore call them, with addresses that were
// prepared in advance, and a call allocates nothing.
//
// Fortran stores matrices column by column, so it sees each row-major matrix
// transposed. gemm therefore asks for C' = op(B)' op(A)': the operands change
// places, as in the CBLAS functions of most libraries.
type fortran[T float32 | float64] struct {
	gemmAt, gemvAt       uintptr   // addresses of the library's functions
	gemmCalls, gemvCalls sync.Pool // prepared arguments for reuse, each a *call[T]
}

// call holds the arguments of one call and their addresses. A call and all
// values that it points to are on the heap, which the garbage collector does
// not move. (It may move a goroutine's stack.) runtime.KeepAlive keeps the
// call alive until the function has returned.
//
// Sizes have 64 bits. Both supported processors are little-endian, so a
// library that reads 32 bits reads the same number.
type call[T float32 | float64] struct {
	left, right          byte // 'N' or 'T': whether the first (left) and the second (right) operand are transposed; gemv does not use right
	m, n, k              int64
	stride1, stride2     int64 // row strides (gemv: for a vector, the increment) of the first and the second operand, in elements
	strideOut            int64 // row stride of out (gemv: its increment), in elements
	alpha, beta          T
	first, second, out   *T
	addresses            [15]uintptr
	at1, at2, atOut, all int // at1, at2 and atOut are indices in addresses of first, second and out; all is the number of addresses in use
}

// bindFortran looks up the library's Fortran functions. It returns false if
// the library lacks one of them.
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

// character is the length of an argument that is a letter. Fortran passes such
// lengths as hidden arguments after the visible ones.
const character = 1

// newGemmCall prepares the addresses of the arguments of xGEMM, in the order
// of the function's parameters.
func newGemmCall[T float32 | float64]() *call[T] {
	x := &call[T]{at1: 6, at2: 8, atOut: 11, all: 15}
	x.addresses = [15]uintptr{
		address(&x.left), address(&x.right), address(&x.m), address(&x.n), address(&x.k),
		address(&x.alpha), 6: 0, 7: address(&x.stride1), 8: 0, 9: address(&x.stride2),
		10: address(&x.beta), 11: 0, 12: address(&x.strideOut), 13: character, 14: character,
	}
	return x
}

// newGemvCall prepares the addresses of the arguments of xGEMV, in the order
// of the function's parameters.
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

// gemv computes y = alpha op(A) v + beta y. It asks Fortran for the opposite
// transposition of A, because Fortran sees a row-major matrix transposed.
func (f *fortran[T]) gemv(tA blas.Transpose, m, n int, alpha T, a *T, lda int, v *T, incV int, beta T, y *T, incY int) {
	x := f.gemvCalls.Get().(*call[T])
	x.set('T'+'N'-letter(tA), 0, n, m, 0, alpha, beta)
	x.operands(a, lda, v, incV, y, incY)
	x.enter(f.gemvAt)
	f.gemvCalls.Put(x)
}

// set sets all arguments except the operands and their strides.
func (x *call[T]) set(left, right byte, m, n, k int, alpha, beta T) {
	x.left, x.right, x.m, x.n, x.k = left, right, int64(m), int64(n), int64(k)
	x.alpha, x.beta = alpha, beta
}

// operands sets the two operands and the result, each with its stride.
func (x *call[T]) operands(first *T, stride1 int, second *T, stride2 int, out *T, strideOut int) {
	x.first, x.second, x.out = first, second, out
	x.stride1, x.stride2, x.strideOut = int64(stride1), int64(stride2), int64(strideOut)
}

// enter calls the function at that address. It passes a slice that was
// prepared in advance; Go would allocate a new slice for a list of arguments.
func (x *call[T]) enter(function uintptr) {
	x.addresses[x.at1], x.addresses[x.at2], x.addresses[x.atOut] = address(x.first), address(x.second), address(x.out)
	purego.SyscallN(function, x.addresses[:x.all]...)
	runtime.KeepAlive(x)                     // keeps x and all values that x points to alive during the call
	x.first, x.second, x.out = nil, nil, nil // the pool must not keep the caller's matrices alive
}

// letter returns the letter by which Fortran names a transposition. For real
// numbers, ConjTrans is the same as Trans.
func letter(t blas.Transpose) byte {
	if t == blas.NoTrans {
		return 'N'
	}
	return 'T'
}
