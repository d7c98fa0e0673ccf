//go:build linux && !nodlopen && !race && (amd64 || arm64)

package blas

import (
	"testing"

	gblas "gonum.org/v1/gonum/blas"
)

// This test does not run under the race detector, which makes a sync.Pool drop
// values at random and so causes allocations.
func TestCallsAllocateNothing(t *testing.T) {
	l := openBLAS(t)
	const n = 200 // products of an n by n matrix and a vector are computed in C from n = 181 on
	a, b, c := make([]float32, n*n), make([]float32, n*n), make([]float32, n*n)
	d, e, f := make([]float64, n*n), make([]float64, n*n), make([]float64, n*n)
	for name, call := range map[string]func(){
		"Sgemm": func() { l.Sgemm(gblas.NoTrans, gblas.Trans, 4, 5, 6, 1, a, 6, b, 6, 0.5, c, 5) },
		"Dgemm": func() { l.Dgemm(gblas.Trans, gblas.NoTrans, 4, 5, 6, 1, d, 4, e, 5, 0.5, f, 5) },
		"Sgemv": func() { l.Sgemv(gblas.Trans, n, n, 1, a, n, b, 1, 0, c, 1) },
		"Dgemv": func() { l.Dgemv(gblas.NoTrans, n, n, 1, d, n, e, 1, 0, f, 1) },
		"empty": func() { l.Sgemm(gblas.NoTrans, gblas.NoTrans, 0, 5, 6, 1, a, 6, b, 5, 0, c, 5) },
	} {
		if got := testing.AllocsPerRun(200, call); got != 0 {
			t.Errorf("%s: %v allocations a call", name, got)
		}
	}
}
