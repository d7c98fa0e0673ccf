package ops

import (
	"fmt"
	"slices"

	gpu "github.com/plx-run/plx/trainer/executor/gpu/kernels"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/nn/matrix"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Linear computes x·w + b, with x (batch, in), w (in, out) and b (out). A nil
// b means no bias. The product is one call to the BLAS library that Gorgonia
// uses.
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
	p := product{m: xs[0], n: ws[1], k: xs[1]}
	o := newOp("linear", dtype, tensor.Shape{xs[0], ws[1]}, choose(dtype, linear[float32], linear[float64], p)).makes(RowsOfFirst)
	return o.with(linearGradients, 0).on(p.gpu(b != nil)).apply(in...)
}

func linearGradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	xs, ws := in[0].Shape(), in[1].Shape()
	b := &adder{what: "linear", dtype: dy.Dtype()}
	all := gorgonia.Nodes{
		b.product("x", product{m: xs[0], n: xs[1], k: ws[1], right: true}, dy, in[1]),
		b.product("w", product{m: ws[0], n: ws[1], k: xs[0], left: true}, in[0], dy),
	}
	if b.err != nil || len(in) == 2 {
		return all, b.err
	}
	db, err := sumChannels("gradient of b of linear", dy)
	return append(all, db), err
}

// product is a product of two matrices, each of which may be transposed. The
// result has shape (m, n), and k is the inner dimension.
type product struct {
	m, n, k     int
	left, right bool // whether the left or the right operand is transposed
}

func (p product) gpu(bias bool) *operation.GPU {
	m := gpu.Matrices{Count: 1, M: p.m, N: p.n, K: p.k, TransA: p.left, TransB: p.right, Bias: bias}
	return by(func(t gpu.Type) (gpu.Operation, error) { return gpu.Product(t, m) })
}

func multiply[T float](p product, out []T, in [][]T) {
	gemm(p, in[0], in[1], 0, out)
}

// linear computes Linear. It copies the bias into the result before the
// product, which saves a pass over the result.
func linear[T float](p product, y []T, in [][]T) {
	beta := T(0)
	if len(in) == 3 {
		matrix.Fill(y, in[2])
		beta = 1
	}
	gemm(p, in[0], in[1], beta, y)
}

// gemm computes c = a·b + beta c for contiguous row-major matrices.
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

// AddBias adds b (channels) along axis 1 of x, which has shape (batch,
// channels) or (batch, channels, height, width).
func AddBias(x, b *gorgonia.Node) (*gorgonia.Node, error) {
	l, dtype, err := channelled("add bias", x, b)
	if err != nil {
		return nil, err
	}
	diff := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		db, err := sumChannels("gradient of bias", dy)
		return gorgonia.Nodes{dy, db}, err
	}
	o := newOp("add bias", dtype, x.Shape(), choose(dtype, addBias[float32], addBias[float64], l)).with(diff, 0).makes(RowsOfFirst)
	return o.on(by(func(t gpu.Type) (gpu.Operation, error) { return gpu.AddBias(t, l.batch, l.channels, l.space) })).apply(x, b)
}

func addBias[T float](l layout, y []T, in [][]T) {
	x, b := in[0], in[1]
	at := 0
	for range l.batch {
		for _, bias := range b {
			for i, v := range x[at : at+l.space] {
				y[at+i] = v + bias
			}
			at += l.space
		}
	}
}

// sumChannels adds an operation that sums the elements of each channel.
func sumChannels(what string, x *gorgonia.Node) (*gorgonia.Node, error) {
	l, dtype, err := channelled(what, x)
	if err != nil {
		return nil, err
	}
	o := newOp(what, dtype, tensor.Shape{l.channels}, choose(dtype, channelSums[float32], channelSums[float64], l))
	return o.on(by(func(t gpu.Type) (gpu.Operation, error) { return gpu.ChannelSums(t, l.gpu()) })).apply(x)
}

func channelSums[T float](s layout, out []T, in [][]T) {
	x := in[0]
	clear(s.of)
	at := 0
	for range s.batch {
		for c := range s.of {
			sum := 0.0
			for _, v := range x[at : at+s.space] {
				sum += float64(v)
			}
			s.of[c] += sum
			at += s.space
		}
	}
	for c, v := range s.of {
		out[c] = T(v)
	}
}

// layout describes a tensor of shape (batch, channels) or (batch, channels,
// space...) whose channels are axis 1.
type layout struct {
	batch, channels, space int
	of                     []float64 // scratch memory: one number for each channel
}

// channelled checks that x has channels, and that every node in others is a
// vector with one element per channel. It returns the layout and type of x.
func channelled(what string, x *gorgonia.Node, others ...*gorgonia.Node) (layout, tensor.Dtype, error) {
	dtype, err := floats(what, append([]*gorgonia.Node{x}, others...)...)
	if err != nil {
		return layout{}, dtype, err
	}
	s := x.Shape()
	if len(s) < 2 {
		return layout{}, dtype, fmt.Errorf("%s: x is %s, want (batch, channels) or (batch, channels, height, width)", what, told(x))
	}
	for _, n := range others {
		if !slices.Equal(n.Shape(), s[1:2]) {
			return layout{}, dtype, fmt.Errorf("%s: x is %s, so %s must be (%d)", what, told(x), told(n), s[1])
		}
	}
	return layout{batch: s[0], channels: s[1], space: memory.Elements(s[2:]), of: make([]float64, s[1])}, dtype, nil
}

func (l layout) gpu() gpu.Channels {
	return gpu.Channels{Batch: l.batch, Channels: l.channels, Space: l.space}
}

// count is the number of elements in each channel.
func (l layout) count() int { return l.batch * l.space }
