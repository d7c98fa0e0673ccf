package cpu

import (
	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/memory"
	"gonum.org/v1/gonum/blas"
	"gorgonia.org/gorgonia"
)

// newGemm returns a kernel that computes C = op(A) op(B) for a batch of
// matrices, which lie one after the other in memory. op transposes its matrix
// if v.Op.TransA or v.Op.TransB is true.
func newGemm[T float](v *compile.Value, lib gorgonia.BLAS, out, a, b *cell[T]) func() {
	shapeA, shapeB := v.Inputs[0].Shape, v.Inputs[1].Shape
	d := len(shapeA) - 2
	count, lda, ldb := memory.Elements(shapeA[:d]), max(1, shapeA[d+1]), max(1, shapeB[d+1])
	tA, tB := transposition(v.Op.TransA), transposition(v.Op.TransB)
	m, k := compile.Turned(shapeA[d:], v.Op.TransA)
	_, n := compile.Turned(shapeB[d:], v.Op.TransB)
	return func() {
		for i := range count {
			a, b := a.data[i*m*k:(i+1)*m*k], b.data[i*k*n:(i+1)*k*n]
			switch c := any(out.data[i*m*n : (i+1)*m*n]).(type) {
			case []float32:
				lib.Sgemm(tA, tB, m, n, k, 1, any(a).([]float32), lda, any(b).([]float32), ldb, 0, c, n)
			case []float64:
				lib.Dgemm(tA, tB, m, n, k, 1, any(a).([]float64), lda, any(b).([]float64), ldb, 0, c, n)
			}
		}
	}
}

func transposition(t bool) blas.Transpose {
	if t {
		return blas.Trans
	}
	return blas.NoTrans
}

// newGemv returns a kernel that computes y = op(A) x. op transposes A if
// v.Op.TransA is true.
func newGemv[T float](v *compile.Value, lib gorgonia.BLAS, out, a, x *cell[T]) func() {
	t, s := transposition(v.Op.TransA), v.Inputs[0].Shape // s is the shape of A in memory, before op
	return func() {
		switch y := any(out.data).(type) {
		case []float32:
			lib.Sgemv(t, s[0], s[1], 1, any(a.data).([]float32), s[1], any(x.data).([]float32), 1, 0, y, 1)
		case []float64:
			lib.Dgemv(t, s[0], s[1], 1, any(a.data).([]float64), s[1], any(x.data).([]float64), 1, 0, y, 1)
		}
	}
}

// outer computes the outer product: each element of a times each element of b.
func outer[T float](out, a, b []T) {
	for i, x := range a {
		mulVS(out[i*len(b):(i+1)*len(b)], b, x)
	}
}
