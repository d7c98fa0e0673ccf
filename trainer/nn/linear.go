package nn

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/nn/matrix"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Linear is x·w + b, with x (batch, in), w (in, out) and b (out). A nil b means
// no bias. The product is one call of the BLAS library that Gorgonia uses.
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
	o := &op{
		what: "linear",
		out:  operand{dtype: dtype, shape: tensor.Shape{xs[0], ws[1]}},
		run:  choose(dtype, linear[float32], linear[float64], product{m: xs[0], n: ws[1], k: xs[1]}),
		diff: linearGradients,
	}
	return o.apply(in...)
}

func linearGradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	xs, ws := in[0].Shape(), in[1].Shape()
	dx, err := newProduct("gradient of linear's x", product{m: xs[0], n: xs[1], k: ws[1], right: true}, dy, in[1])
	if err != nil {
		return nil, err
	}
	dw, err := newProduct("gradient of linear's w", product{m: ws[0], n: ws[1], k: xs[0], left: true}, in[0], dy)
	if err != nil || len(in) == 2 {
		return gorgonia.Nodes{dx, dw}, err
	}
	db, err := sumChannels("gradient of linear's b", dy)
	return gorgonia.Nodes{dx, dw, db}, err
}

// product is a product of two matrices, each of which may be transposed. The
// result has shape (m, n); each of its elements is a sum of k terms.
type product struct {
	m, n, k     int
	left, right bool // the operand is transposed
}

func newProduct(what string, p product, a, b *gorgonia.Node) (*gorgonia.Node, error) {
	o := &op{
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

// linear begins with the bias in the result, which saves a pass over it.
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

// gemm computes c = a·b + beta c for row-major matrices without gaps.
func gemm[T float](p product, a, b []T, beta T, c []T) {
	left, right := matrix.Whole(a, p.k), matrix.Whole(b, p.n)
	if p.left {
		left = matrix.Whole(a, p.m).T()
	}
	if p.right {
		right = matrix.Whole(b, p.k).T()
	}
	matrix.Mul(p.m, p.n, p.k, left, right, beta, matrix.Whole(c, p.n))
}
