package cpu

import (
	"math"

	"github.com/plx-run/plx/trainer/executor/compile"
)

// softmax computes e^x / sum(e^x) along an axis, or its logarithm. It subtracts
// the largest element of each sum first, so that nothing overflows.
type softmax[T float] struct {
	out, a   *cell[T]
	n, inner int
	log      bool
	exp      func(T) T
}

func newSoftmax[T float](v *compile.Value, out, a *cell[T]) kernel {
	k := &softmax[T]{out: out, a: a, log: v.Op.Log, exp: exponential[T]()}
	_, k.n, k.inner = compile.Threefold(v.Shape, v.Op.Axes[0])
	return k
}

func exponential[T float]() func(T) T {
	if f, ok := any(exp32).(func(T) T); ok {
		return f
	}
	return any(math.Exp).(func(T) T)
}

func (k *softmax[T]) run() error {
	block := k.n * k.inner
	for o := 0; o < len(k.out.data); o += block {
		for i := range k.inner {
			k.one(k.out.data[o+i:o+block], k.a.data[o+i:o+block])
		}
	}
	return nil
}

// one takes elements that lie inner apart.
func (k *softmax[T]) one(out, a []T) {
	m := a[0]
	for i := 0; i < len(a); i += k.inner {
		if a[i] > m || a[i] != a[i] {
			m = a[i]
		}
	}
	var sum float64
	for i := 0; i < len(a); i += k.inner {
		e := k.exp(a[i] - m)
		sum += float64(e)
		out[i] = e
	}
	if k.log {
		total := T(math.Log(sum))
		for i := 0; i < len(a); i += k.inner {
			out[i] = (a[i] - m) - total
		}
		return
	}
	for i := 0; i < len(a); i += k.inner {
		out[i] = T(float64(out[i]) / sum)
	}
}

// softmaxGradient computes the gradient from the softmax's result y and its
// gradient g: y (g - sum(g y)), or g - e^y sum(g) for the logarithm.
type softmaxGradient[T float] struct {
	out, y, g *cell[T]
	n, inner  int
	log       bool
	exp       func(T) T
}

func newSoftmaxGradient[T float](v *compile.Value, out, y, g *cell[T]) kernel {
	k := &softmaxGradient[T]{out: out, y: y, g: g, log: v.Op.Log, exp: exponential[T]()}
	_, k.n, k.inner = compile.Threefold(v.Shape, v.Op.Axes[0])
	return k
}

func (k *softmaxGradient[T]) run() error {
	block := k.n * k.inner
	for o := 0; o < len(k.out.data); o += block {
		for i := range k.inner {
			k.one(k.out.data[o+i:o+block], k.y.data[o+i:o+block], k.g.data[o+i:o+block])
		}
	}
	return nil
}

func (k *softmaxGradient[T]) one(out, y, g []T) {
	var sum float64
	for i := 0; i < len(y); i += k.inner {
		if k.log {
			sum += float64(g[i])
		} else {
			sum += float64(float64(g[i]) * float64(y[i]))
		}
	}
	s := T(sum)
	for i := 0; i < len(y); i += k.inner {
		if k.log {
			out[i] = g[i] - T(k.exp(y[i])*s)
		} else {
			out[i] = y[i] * (g[i] - s)
		}
	}
}
