package kernels_test

import (
	"fmt"
	"math"
	"testing"

	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/gorgonia"
)

func TestSoftmaxMatchesCPU(t *testing.T) {
	for _, s := range [][]int{{1, 1}, {5, 10}, {33, 31}, {3, 33}, {4, 257}, {2, 1030}, {3, 7, 5}} {
		for _, log := range []bool{false, true} {
			bothTypes(t, fmt.Sprint(s, log), func(t *testing.T) { checkSoftmax[float32](t, s, log) }, func(t *testing.T) { checkSoftmax[float64](t, s, log) })
		}
	}
}

func checkSoftmax[T float](t *testing.T, s []int, log bool) {
	x, dy := noise[T](1, size(s)), noise[T](2, size(s))
	last, typ := len(s)-1, number[T]()
	graphs, rows := gorgonia.SoftMax, ops.Softmax
	if log {
		graphs, rows = gorgonia.LogSoftMax, ops.LogSoftmax
	}
	want := onCPU(t, 1, dy, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return graphs(in[0], last) }, of(x, s...))
	outer, n := size(s[:last]), s[last]
	forward, backward := BoundOf("softmax", typ), BoundOf("softmax gradient", typ)
	// The sum of a row's exponentials has n terms, so the error of a result
	// may be n roundings of the result. For a gradient the terms are dy, or
	// dy*y.
	own, terms := make([]float64, len(x)), make([]float64, len(x))
	for i := range x {
		from := i / n * n
		own[i] = float64(n) * math.Max(math.Abs(float64(want.out[i])), 1e-3)
		terms[i] = float64(n) * (sumOf(dy[from:from+n]) + 1)
	}
	same(t, "softmax", forward, compute(t, len(x), x)(Softmax(typ, outer, n, 1, log)), want.out, own...)
	same(t, "gradient", backward, compute(t, len(x), want.out, dy)(SoftmaxGradient(typ, outer, n, 1, log)), want.gradients[0], terms...)
	want = onCPU(t, 1, dy, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return rows(in[0]) }, of(x, s...))
	same(t, "rows", forward, compute(t, len(x), x)(RowSoftmax(typ, outer, n, log)), want.out, own...)
	same(t, "gradient of rows", backward, compute(t, len(x), want.out, dy)(RowSoftmaxGradient(typ, outer, n, log)), want.gradients[0], terms...)
}

func sumOf[T float](x []T) (sum float64) {
	for _, v := range x {
		sum += math.Abs(float64(v))
	}
	return sum
}

// Softmax along an axis other than the last matches the CPU.
func TestSoftmaxAlongMiddleAxis(t *testing.T) {
	const outer, n, inner = 3, 40, 35
	x := noise[float32](3, outer*n*inner)
	want := onCPU(t, 0, nil, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return gorgonia.SoftMax(in[0], 1) }, of(x, outer, n, inner))
	same(t, "softmax", BoundOf("softmax", Float32), compute(t, len(x), x)(Softmax(Float32, outer, n, inner, false)), want.out)
}

func TestCrossEntropyMatchesCPU(t *testing.T) {
	for _, s := range [][2]int{{1, 1}, {6, 10}, {33, 31}, {257, 3}, {5, 257}, {2, 1030}} {
		for _, labels := range []Labels{Weights, Float32Classes} {
			bothTypes(t, fmt.Sprint(s, labels), func(t *testing.T) { checkEntropy[float32](t, s[0], s[1], labels) },
				func(t *testing.T) { checkEntropy[float64](t, s[0], s[1], labels) })
		}
	}
}

func checkEntropy[T float](t *testing.T, rows, classes int, labels Labels) {
	x, typ := noise[T](4, rows*classes), number[T]()
	y := of(make([]T, rows*classes), rows, classes)
	for i := range rows {
		y.data[i*classes+i*7%classes] = 1
	}
	if labels != Weights {
		y = of(make([]T, rows), rows)
		for i := range rows {
			y.data[i] = T(i * 5 % classes)
		}
		if typ == Float64 {
			labels = Float64Classes
		}
	}
	want := onCPU(t, 1, nil, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return ops.CrossEntropy(in[0], in[1]) }, of(x, rows, classes), y)
	same(t, "loss", BoundOf("cross entropy", typ), compute(t, 1, x, y.data)(CrossEntropy(typ, rows, classes, labels, float64(rows))), want.out, 10*float64(rows))
	got := compute(t, len(x), x, y.data, []T{1})(CrossEntropyGradient(typ, rows, classes, labels, float64(rows)))
	same(t, "gradient", BoundOf("cross entropy gradient", typ), got, want.gradients[0], float64(classes))
	want = onCPU(t, 0, nil, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return ops.Accuracy(in[0], in[1]) }, of(x, rows, classes), y)
	same(t, "accuracy", Bound{}, compute(t, 1, x, y.data)(Accuracy(typ, rows, classes, labels)), want.out)
}

// An invalid class number makes the loss NaN, and does not change the
// gradients of the other rows.
func TestInvalidClassNumberMakesLossNaN(t *testing.T) {
	x := noise[float32](5, 9)
	for _, wrong := range []float32{-1, 3, 0.5, float32(math.NaN())} {
		labels := []float32{0, wrong, 2}
		loss := compute(t, 1, x, labels)(CrossEntropy(Float32, 3, 3, Float32Classes, 3))
		accuracy := compute(t, 1, x, labels)(Accuracy(Float32, 3, 3, Float32Classes))
		dx := compute(t, 9, x, labels, []float32{1})(CrossEntropyGradient(Float32, 3, 3, Float32Classes, 3))
		if loss[0] == loss[0] || accuracy[0] == accuracy[0] || dx[3] == dx[3] || dx[2] != dx[2] || dx[6] != dx[6] {
			t.Errorf("label %v: loss %v, accuracy %v, gradient %v", wrong, loss, accuracy, dx)
		}
	}
}

// A logit of -Inf makes the loss infinite, unless its class has weight 0.
func TestLogitOfMinusInfinity(t *testing.T) {
	x, y := []float32{float32(math.Inf(-1)), 0, 1}, []float32{0, 1, 0}
	want := onCPU(t, 0, nil, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return ops.CrossEntropy(in[0], in[1]) }, of(x, 1, 3), of(y, 1, 3))
	if got := compute(t, 1, x, y)(CrossEntropy(Float32, 1, 3, Weights, 1)); got[0] != want.out[0] || got[0] != got[0] {
		t.Errorf("loss %v, want %v", got, want.out)
	}
}

// Labels may be class numbers of type int32 or int64.
func TestIntegerClassNumbers(t *testing.T) {
	x := noise[float32](6, 12)
	want := compute(t, 1, x, []float32{2, 0, 1, 2})(CrossEntropy(Float32, 4, 3, Float32Classes, 4))
	for labels, data := range map[Labels][]byte{Int32Classes: bytesOf([]int32{2, 0, 1, 2}), Int64Classes: bytesOf([]int64{2, 0, 1, 2})} {
		o, err := CrossEntropy(Float32, 4, 3, labels, 4)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 1)
		execute(t, o, 1, bytesOf(got), bytesOf(x), data)
		same(t, "loss", Bound{}, got, want)
	}
}
