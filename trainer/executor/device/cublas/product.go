package cublas

import (
	"unsafe"

	"github.com/plx-run/plx/trainer/executor/device"
)

// Product is Count products of matrices of M x K and K x N elements, which lie one
// after the other, row-major. A is K x M in memory if TransA is set, B is N x K if
// TransB is set. No size is 0.
type Product struct {
	Double         bool // the numbers are float64; false means float32
	Count, M, N, K int
	TransA, TransB bool
	Out, A, B      device.Pointer
}

// Handle puts products on a stream. It is for one goroutine at a time.
type Handle struct {
	library  *Library
	handle   uintptr
	multiply func() error // h.call, made once
	function string       // of the next call
	args     [18]uintptr
	count    int // of args

	// What a sum and the old result are multiplied with.
	one32  float32
	one64  float64
	zero64 float64 // its first bytes are the float32 0
}

// How an operand lies in memory.
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

// Multiply puts a product on the handle's stream. It allocates nothing, and can be
// recorded in a graph.
func (h *Handle) Multiply(p *Product) error {
	h.function, h.count = h.set(p)
	return h.library.gpu.Do(h.multiply)
}

func (h *Handle) call() error {
	return checked(h.function, call(h.library.calls[h.function], h.args[:h.count]))
}

// set sets the arguments of a call: their number, and the function. cuBLAS counts by
// columns. A row-major matrix is the transposed one by columns, and the transposed
// result is the product of the transposed B and the transposed A.
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

// Close gives the handle back. The stream's work must be done.
func (h *Handle) Close() error {
	return h.library.gpu.Do(func() error { return h.library.calls.do("cublasDestroy_v2", h.handle) })
}
