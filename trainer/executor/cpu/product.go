package cpu

import (
	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/memory"
	"gonum.org/v1/gonum/blas"
	"gorgonia.org/gorgonia"
)

// gemm computes C = op(A) op(B) for count matrices that lie one after the
// other.
type gemm[T float] struct {
	out, a, b *cell[T]
	tA, tB    blas.Transpose
	m, n, k   int
	lda, ldb  int
	count     int
	lib       gorgonia.BLAS
}

func newGemm[T float](v *compile.Value, lib gorgonia.BLAS, out, a, b *cell[T]) func() {
	sa, sb := v.Inputs[0].Shape, v.Inputs[1].Shape
	n := len(sa) - 2
	k := &gemm[T]{out: out, a: a, b: b, tA: transposition(v.Op.TransA), tB: transposition(v.Op.TransB),
		lda: max(1, sa[n+1]), ldb: max(1, sb[n+1]), count: memory.Elements(sa[:n]), lib: lib}
	k.m, k.k = compile.Turned(sa[n:], v.Op.TransA)
	_, k.n = compile.Turned(sb[n:], v.Op.TransB)
	return k.run
}

func transposition(t bool) blas.Transpose {
	if t {
		return blas.Trans
	}
	return blas.NoTrans
}

func (g *gemm[T]) run() {
	sizeA, sizeB, sizeC := g.m*g.k, g.k*g.n, g.m*g.n
	for i := range g.count {
		g.one(g.out.data[i*sizeC:(i+1)*sizeC], g.a.data[i*sizeA:(i+1)*sizeA], g.b.data[i*sizeB:(i+1)*sizeB])
	}
}

func (g *gemm[T]) one(c, a, b []T) {
	switch c := any(c).(type) {
	case []float32:
		g.lib.Sgemm(g.tA, g.tB, g.m, g.n, g.k, 1, any(a).([]float32), g.lda, any(b).([]float32), g.ldb, 0, c, g.n)
	case []float64:
		g.lib.Dgemm(g.tA, g.tB, g.m, g.n, g.k, 1, any(a).([]float64), g.lda, any(b).([]float64), g.ldb, 0, c, g.n)
	}
}

// newGemv computes y = op(A) x.
func newGemv[T float](v *compile.Value, lib gorgonia.BLAS, out, a, x *cell[T]) func() {
	t, s := transposition(v.Op.TransA), v.Inputs[0].Shape // of A in memory, before op
	return func() {
		switch y := any(out.data).(type) {
		case []float32:
			lib.Sgemv(t, s[0], s[1], 1, any(a.data).([]float32), s[1], any(x.data).([]float32), 1, 0, y, 1)
		case []float64:
			lib.Dgemv(t, s[0], s[1], 1, any(a.data).([]float64), s[1], any(x.data).([]float64), 1, 0, y, 1)
		}
	}
}

// outer computes every product of an element of a and one of b.
func outer[T float](out, a, b []T) {
	for i, x := range a {
		mulVS(out[i*len(b):(i+1)*len(b)], b, x)
	}
}
