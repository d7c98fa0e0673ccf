package cublas

import (
	"unsafe"

	"github.com/plx-run/plx/trainer/executor/device"
)

// Product is the multiplication of Count pairs of row-major matrices A (M x K)
// and B (K x N). The matrices of each operand lie one after the other in
// memory. If TransA is true, A is stored as K x M; if TransB is true, B is
// stored as N x K. No size may be 0.
type Product struct {
	Double         bool // true if the numbers are float64; false means float32
	Count, M, N, K int
	TransA, TransB bool
	Out, A, B      device.Pointer
}

// Handle runs matrix products of cuBLAS on one CUDA stream. It may be used by
// one goroutine at a time.
type Handle struct {
	library  *Library
	handle   uintptr
	multiply func() error // the method value h.call, which is created only once so that Multiply allocates nothing
	function string       // name of the cuBLAS function that call calls
	args     [18]uintptr
	count    int // number of arguments in args

	// The factors alpha (1) and beta (0) of a cuBLAS product. They are fields,
	// because cuBLAS reads them through pointers.
	one32  float32
	one64  float64
	zero64 float64 // the factor beta for both types, because its first 4 bytes are also the float32 0
}

// Values of cublasOperation_t: whether cuBLAS transposes an operand.
const (
	asItIs     = 0
	transposed = 1
)

func turned(t bool) uintptr {
	if t {
		return transposed
	}
	return asItIs
}

// Multiply puts product p on the handle's stream. It allocates nothing, and a
// CUDA graph can record it.
func (h *Handle) Multiply(p *Product) error {
	h.function, h.count = h.set(p)
	return h.library.gpu.Do(h.multiply)
}

func (h *Handle) call() error {
	return checked(h.function, call(h.library.calls[h.function], h.args[:h.count]))
}

// set writes the arguments of a cuBLAS call to h.args. It returns the
// function's name and the number of arguments.
//
// cuBLAS expects column-major matrices. A row-major matrix read as
// column-major is its transpose. So set makes cuBLAS compute the transpose of
// the result, which is the product of transposed B and transposed A.
func (h *Handle) set(p *Product) (f string, n int) {
	one, f, many := uintptr(unsafe.Pointer(&h.one32)), "cublasSgemm_v2", "cublasSgemmStridedBatched"
	if p.Double {
		one, f, many = uintptr(unsafe.Pointer(&h.one64)), "cublasDgemm_v2", "cublasDgemmStridedBatched"
	}
	zero := uintptr(unsafe.Pointer(&h.zero64))
	rowA, rowB := p.K, p.N
	if p.TransA {
		rowA = p.M
	}
	if p.TransB {
		rowB = p.K
	}
	out, a, b := uintptr(p.Out), uintptr(p.A), uintptr(p.B)
	h.args = [18]uintptr{h.handle, turned(p.TransB), turned(p.TransA), uintptr(p.N), uintptr(p.M), uintptr(p.K)}
	if p.Count == 1 {
		return f, 6 + copy(h.args[6:], []uintptr{one, b, uintptr(rowB), a, uintptr(rowA), zero, out, uintptr(p.N)})
	}
	args := []uintptr{one, b, uintptr(rowB), uintptr(p.K * p.N), a, uintptr(rowA), uintptr(p.M * p.K),
		zero, out, uintptr(p.N), uintptr(p.M * p.N), uintptr(p.Count)}
	return many, 6 + copy(h.args[6:], args)
}

// Close destroys the cuBLAS handle. All work on its stream must be done.
func (h *Handle) Close() error {
	return h.library.gpu.Do(func() error { return h.library.calls.do("cublasDestroy_v2", h.handle) })
}
