package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// measureSize measures a product or a convolution, and checks its result.
func measureSize(b *bench, w work) figure {
	if w.Kind == product {
		return measureProduct(b, w)
	}
	return measureConvolution(b, w)
}

func measureProduct(b *bench, w work) figure {
	p, t := *w.Product, kernels.Float32
	if w.Double {
		t = kernels.Float64
	}
	x, y, out := b.noise(1, p.Count*p.M*p.K, t), b.noise(2, p.Count*p.K*p.N, t), b.array(p.Count*p.M*p.N, t)
	f := b.measure(w, b.prepare(kernels.Product(t, p))(out.at, x.at, y.at).put)
	b.fetch(out)
	b.do(func() error { return checkProduct(p, out, x, y) })
	return f
}

// checked is how many elements of a large result are compared, besides the last one.
const checked = 200

// some calls f for elements of an array that chance picks, and for the last one.
func some(a *array, f func(at int) error) error {
	random := rand.New(rand.NewPCG(3, 4))
	for range checked {
		if err := f(random.IntN(a.len())); err != nil {
			return err
		}
	}
	return f(a.len() - 1)
}

// sum is a sum of products in double precision.
type sum struct {
	value, sizes float64 // of the terms, and of their absolute values
	terms        int
}

func (s *sum) add(term float64) {
	s.value, s.sizes, s.terms = s.value+term, s.sizes+math.Abs(term), s.terms+1
}

// compare wants element i of a to be the sum but for rounding: the bound is that of
// any order of additions, for the GPU and for the sum here.
func (s *sum) compare(a *array, i int) error {
	bound := float64(s.terms+1) * (a.unit() + 0x1p-53) * s.sizes
	if off := math.Abs(a.of(i) - s.value); !(off <= bound) {
		return fmt.Errorf("element %d of %d is %v, want %v within %.3g", i, a.len(), a.of(i), s.value, bound)
	}
	return nil
}

func checkProduct(p kernels.Matrices, out, x, y *array) error {
	return some(out, func(at int) error {
		which, row, column, s := at/(p.M*p.N), at/p.N%p.M, at%p.N, sum{}
		for k := range p.K {
			i, j := row*p.K+k, k*p.N+column
			if p.TransA {
				i = k*p.M + row
			}
			if p.TransB {
				j = column*p.K + k
			}
			s.add(x.of(which*p.M*p.K+i) * y.of(which*p.K*p.N+j))
		}
		return s.compare(out, at)
	})
}

// measureConvolution measures a convolution that keeps the size of images, or one of
// its gradients.
func measureConvolution(b *bench, w work) (f figure) {
	const t = kernels.Float32
	v := *w.Window
	x, y := b.noise(1, v.Batch*v.Channels*v.Height*v.Width, t), b.noise(2, w.Filters*v.Channels*v.KernelHeight*v.KernelWidth, t)
	out, dy := b.array(v.Batch*w.Filters*v.Height*v.Width, t), b.noise(3, v.Batch*w.Filters*v.Height*v.Width, t)
	forward := b.prepare(kernels.Convolve(t, v, w.Filters))(out.at, x.at, y.at)
	if w.Kind == convolution {
		f = b.measure(w, forward.put)
		b.fetch(out)
		b.do(func() error { return checkConvolution(v, w.Filters, out, x, y) })
		return f
	}
	b.do(forward.put)
	b.fetch(out)
	of, gradient := x, b.array(x.len(), t)
	if w.Kind == filterGradient {
		of, gradient = y, b.array(y.len(), t)
		f = b.measure(w, b.prepare(kernels.ConvolveFilterGradient(t, v, w.Filters))(gradient.at, x.at, dy.at).put)
	} else {
		f = b.measure(w, b.prepare(kernels.ConvolveImageGradient(t, v, w.Filters))(gradient.at, y.at, dy.at).put)
	}
	b.fetch(gradient)
	b.do(func() error { return checkGradient(out, dy, of, gradient) })
	return f
}

func checkConvolution(v kernels.Window, filters int, out, x, y *array) error {
	plane, area := v.Height*v.Width, v.KernelHeight*v.KernelWidth
	return some(out, func(at int) error {
		image, filter, row, column, s := at/(filters*plane), at/plane%filters, at/v.Width%v.Height, at%v.Width, sum{}
		for k := range v.Channels * area {
			channel, i, j := k/area, row+k%area/v.KernelWidth-v.Pad, column+k%v.KernelWidth-v.Pad
			if i >= 0 && i < v.Height && j >= 0 && j < v.Width {
				s.add(x.of((image*v.Channels+channel)*plane+i*v.Width+j) * y.of(filter*v.Channels*area+k))
			}
		}
		return s.compare(out, at)
	})
}

// checkGradient checks a gradient by the result of the convolution, which is linear in
// x and in the filters: the inner product of out and dy is that of x and its gradient.
// The numbers are random, so the sums are about as large as one wrong element in
// 10^8 would make them differ.
func checkGradient(out, dy, x, gradient *array) error {
	want, got := inner(out, dy), inner(x, gradient)
	bound := 1e-4 * math.Sqrt(inner(out, out)*inner(dy, dy)/float64(out.len()))
	if off := math.Abs(got - want); !(off <= bound) {
		return fmt.Errorf("the inner product with the gradient is %v, want %v within %.3g", got, want, bound)
	}
	return nil
}

func inner(a, b *array) (s float64) {
	for i := range a.len() {
		s += a.of(i) * b.of(i)
	}
	return s
}

// measureMove measures a copy, an addition or launches.
func measureMove(b *bench, w work) figure {
	switch w.Kind {
	case copyIn, copyOut, copyWithin:
		return measureCopy(b, w)
	case addition:
		x, y := b.zeros(4*w.N), b.zeros(4*w.N)
		return b.measure(w, b.prepare(kernels.Binary(kernels.Float32, "+", w.N, w.N, w.N))(b.zeros(4*w.N), x, y).put)
	}
	x := b.zeros(4)
	little := b.prepare(kernels.Copy(kernels.Float32, 1))(b.zeros(4), x)
	many := func() error {
		for range w.N {
			if err := little.put(); err != nil {
				return err
			}
		}
		return nil
	}
	put := many
	switch w.Kind {
	case roundTrip:
		put = func() error {
			b.do(little.put)
			b.finish()
			return b.err
		}
	case replay:
		g := b.record(many)
		put = func() error { return b.stream.Replay(g) }
	}
	f := b.measure(w, put)
	f.Ms /= float64(w.N)
	return f
}

// measureCopy measures a copy.
func measureCopy(b *bench, w work) figure {
	to, from := b.zeros(w.N), b.zeros(w.N)
	if w.Kind == copyWithin {
		return b.measure(w, b.prepare(kernels.Copy(kernels.Float32, w.N/4))(to, from).put)
	}
	host := b.host(w.N)
	if w.Kind == copyIn {
		return b.measure(w, func() error { return b.stream.In(to, host) })
	}
	return b.measure(w, func() error { return b.stream.Out(host, from) })
}
