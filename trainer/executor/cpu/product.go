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
	sgemm     sgemmer
	dgemm     dgemmer
}

type sgemmer interface {
	Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int)
	Sgemv(tA blas.Transpose, m, n int, alpha float32, a []float32, lda int, x []float32, incX int, beta float32, y []float32, incY int)
}

type dgemmer interface {
	Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int)
	Dgemv(tA blas.Transpose, m, n int, alpha float64, a []float64, lda int, x []float64, incX int, beta float64, y []float64, incY int)
}

func newGemm[T float](v *compile.Value, lib gorgonia.BLAS, out, a, b *cell[T]) kernel {
	sa, sb := v.Inputs[0].Shape, v.Inputs[1].Shape
	n := len(sa) - 2
	k := &gemm[T]{out: out, a: a, b: b, tA: transposition(v.Op.TransA), tB: transposition(v.Op.TransB),
		lda: max(1, sa[n+1]), ldb: max(1, sb[n+1]), count: memory.Elements(sa[:n]), sgemm: lib, dgemm: lib}
	k.m, k.k = compile.Turned(sa[n:], v.Op.TransA)
	_, k.n = compile.Turned(sb[n:], v.Op.TransB)
	return k
}

func transposition(t bool) blas.Transpose {
	if t {
		return blas.Trans
	}
	return blas.NoTrans
}

func (g *gemm[T]) run() error {
	sizeA, sizeB, sizeC := g.m*g.k, g.k*g.n, g.m*g.n
	for i := range g.count {
		g.one(g.out.data[i*sizeC:(i+1)*sizeC], g.a.data[i*sizeA:(i+1)*sizeA], g.b.data[i*sizeB:(i+1)*sizeB])
	}
	return nil
}

func (g *gemm[T]) one(c, a, b []T) {
	switch c := any(c).(type) {
	case []float32:
		g.sgemm.Sgemm(g.tA, g.tB, g.m, g.n, g.k, 1, any(a).([]float32), g.lda, any(b).([]float32), g.ldb, 0, c, g.n)
	case []float64:
		g.dgemm.Dgemm(g.tA, g.tB, g.m, g.n, g.k, 1, any(a).([]float64), g.lda, any(b).([]float64), g.ldb, 0, c, g.n)
	}
}

// gemv computes y = op(A) x.
type gemv[T float] struct {
	out, a, x *cell[T]
	t         blas.Transpose
	m, n      int // shape of A in memory, before op
	sgemm     sgemmer
	dgemm     dgemmer
}

func newGemv[T float](v *compile.Value, lib gorgonia.BLAS, out, a, x *cell[T]) kernel {
	s := v.Inputs[0].Shape
	return &gemv[T]{out: out, a: a, x: x, t: transposition(v.Op.TransA), m: s[0], n: s[1], sgemm: lib, dgemm: lib}
}

func (g *gemv[T]) run() error {
	switch y := any(g.out.data).(type) {
	case []float32:
		g.sgemm.Sgemv(g.t, g.m, g.n, 1, any(g.a.data).([]float32), g.n, any(g.x.data).([]float32), 1, 0, y, 1)
	case []float64:
		g.dgemm.Dgemv(g.t, g.m, g.n, 1, any(g.a.data).([]float64), g.n, any(g.x.data).([]float64), 1, 0, y, 1)
	}
	return nil
}

// dotProduct computes the dot product of two vectors.
type dotProduct[T float] struct{ out, a, b *cell[T] }

func (k *dotProduct[T]) run() error {
	k.out.data[0] = T(dot(k.a.data, k.b.data))
	return nil
}

// outer computes every product of an element of a and one of b.
type outer[T float] struct{ out, a, b *cell[T] }

func (k *outer[T]) run() error {
	a, b := k.a.data, k.b.data
	for i, x := range a {
		mulVS(k.out.data[i*len(b):(i+1)*len(b)], b, x)
	}
	return nil
}
