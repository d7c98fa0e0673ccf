package nn

import (
	"fmt"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Linear is x·w + b: x (batch, in), w (in, out), b (out). A nil b is no bias.
// The product is one call of the BLAS library that Gorgonia uses.
func Linear(x, w, b *gorgonia.Node) (*gorgonia.Node, error) {
	in := []*gorgonia.Node{x, w}
	if b != nil {
		in = append(in, b)
	}
	dtype, err := floats("linear", in...)
	if err != nil {
		return nil, err
	}
	xs, ws := x.Shape(), w.Shape()
	if len(xs) != 2 || len(ws) != 2 || xs[1] != ws[0] {
		return nil, fmt.Errorf("linear: x is %s and w %s, want (batch, in) and (in, out)", told(x), told(w))
	}
	if b != nil && !slices.Equal(b.Shape(), ws[1:]) {
		return nil, fmt.Errorf("linear: w is %s, so b, which is %s, must be (%d)", told(w), told(b), ws[1])
	}
	o := &operation{
		what: "linear",
		out:  operand{dtype: dtype, shape: tensor.Shape{xs[0], ws[1]}},
		run:  choose(dtype, linear[float32], linear[float64], product{m: xs[0], n: ws[1], k: xs[1]}),
		diff: linearGradients,
	}
	return o.apply(in...)
}

func linearGradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	xs, ws := in[0].Shape(), in[1].Shape()
	dx, err := newProduct("gradient of linear's x", product{m: xs[0], n: xs[1], k: ws[1], right: blas.Trans}, dy, in[1])
	if err != nil {
		return nil, err
	}
	dw, err := newProduct("gradient of linear's w", product{m: ws[0], n: ws[1], k: xs[0], left: blas.Trans}, in[0], dy)
	if err != nil || len(in) == 2 {
		return gorgonia.Nodes{dx, dw}, err
	}
	db, err := sumChannels("gradient of linear's b", dy)
	return gorgonia.Nodes{dx, dw, db}, err
}

// product is a matrix (m, n) that is the product of two others, each of which
// may be taken transposed.
type product struct {
	m, n, k     int
	left, right blas.Transpose // zero: as it is
}

func newProduct(what string, p product, a, b *gorgonia.Node) (*gorgonia.Node, error) {
	o := &operation{
		what: what,
		out:  operand{dtype: a.Dtype(), shape: tensor.Shape{p.m, p.n}},
		run:  choose(a.Dtype(), multiply[float32], multiply[float64], p),
	}
	return o.apply(a, b)
}

func multiply[T float](p product) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		gemm(p, data[T](in[0]), data[T](in[1]), 0, data[T](out))
		return nil
	}
}

// linear starts from the bias, which saves a pass over the result.
func linear[T float](p product) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		y, beta := data[T](out), T(0)
		if len(in) == 3 {
			b := data[T](in[2])
			for i := range p.m {
				copy(y[i*p.n:], b)
			}
			beta = 1
		}
		gemm(p, data[T](in[0]), data[T](in[1]), beta, y)
		return nil
	}
}

// gemm is c = a·b + beta c for row-major matrices without gaps.
func gemm[T float](p product, a, b []T, beta T, c []T) {
	lda, ldb := p.k, p.n
	left, right := blas.Transpose(blas.NoTrans), blas.Transpose(blas.NoTrans)
	if p.left == blas.Trans {
		left, lda = blas.Trans, p.m
	}
	if p.right == blas.Trans {
		right, ldb = blas.Trans, p.k
	}
	switch c := any(&c).(type) {
	case *[]float32:
		gorgonia.WhichBLAS().Sgemm(left, right, p.m, p.n, p.k, 1, as[float32](a), lda, as[float32](b), ldb, float32(beta), *c, p.n)
	case *[]float64:
		gorgonia.WhichBLAS().Dgemm(left, right, p.m, p.n, p.k, 1, as[float64](a), lda, as[float64](b), ldb, float64(beta), *c, p.n)
	}
}
