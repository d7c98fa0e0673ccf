package kernels_test

import (
	"fmt"
	"math"
	"testing"

	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/optimizer"
	"gorgonia.org/gorgonia"
)

func TestReductionsMatchCPU(t *testing.T) {
	for _, c := range []struct{ shape, axes []int }{
		{[]int{1}, nil}, {[]int{6, 1}, []int{0}}, {[]int{31, 33}, []int{0}}, {[]int{33, 31}, []int{1}}, {[]int{257, 5}, []int{0}},
		{[]int{5, 257}, []int{1}}, {[]int{3, 4, 5}, []int{1}}, {[]int{3, 4, 5}, []int{0, 2}}, {[]int{2, 3, 4, 5}, []int{0, 2, 3}}, {[]int{1009}, nil},
		{[]int{40, 31}, nil}, {[]int{2000, 3}, []int{0}}, {[]int{2, 1500}, []int{1}}, {[]int{2, 9001}, []int{1}}, {[]int{700, 33}, []int{0}}, {[]int{12007}, nil},
	} {
		bothTypes(t, fmt.Sprint(c.shape, c.axes), func(t *testing.T) { checkReduction[float32](t, c.shape, c.axes) },
			func(t *testing.T) { checkReduction[float64](t, c.shape, c.axes) })
	}
}

func checkReduction[T float](t *testing.T, shape, axes []int) {
	x := noise[T](1, size(shape))
	for _, what := range []string{"sum", "max"} {
		build, call := gorgonia.Sum, Sum
		if what == "max" {
			build, call = gorgonia.Max, Max
		}
		want := onCPU(t, 0, nil, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return build(in[0], axes...) }, of(x, shape...))
		// slack is the number of terms times the sum of their absolute values,
		// for the bound of a sum.
		slack := make([]float64, len(want.out))
		for i, v := range compute(t, len(want.out), magnitudes(x))(Sum(number[T](), shape, axes)) {
			slack[i] = float64(v) * float64(len(x)) / float64(len(want.out))
		}
		got := compute(t, len(want.out), x)(call(number[T](), shape, axes))
		same(t, what, BoundOf(what, number[T]()), got, want.out, slack...)
	}
}

// magnitudes returns the absolute values of x.
func magnitudes[T float](x []T) []T {
	to := make([]T, len(x))
	for i, v := range x {
		to[i] = T(math.Abs(float64(v)))
	}
	return to
}

func TestDotAndSumsOfSquaresMatchCPU(t *testing.T) {
	for _, n := range append(lengths, 1023, 1024, 1025, 5000) {
		bothTypes(t, fmt.Sprint(n), func(t *testing.T) { checkDot[float32](t, n) }, func(t *testing.T) { checkDot[float64](t, n) })
	}
}

func checkDot[T float](t *testing.T, n int) {
	a, b := noise[T](2, n), noise[T](3, n)
	want := onCPU(t, 0, nil, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return gorgonia.Mul(in[0], in[1]) }, of(a, n), of(b, n))
	all := 0.0
	for i := range a {
		all += math.Abs(float64(a[i]) * float64(b[i]))
	}
	same(t, "dot", BoundOf("dot", number[T]()), compute(t, 1, a, b)(Dot(number[T](), n)), want.out, float64(n)*all)

	var sums []float64
	for from := 0; from < n; from += 1024 {
		sums = append(sums, optimizer.SumOfSquares(a[from:min(from+1024, n)]))
	}
	got := make([]float64, len(sums))
	o, err := SumsOfSquares(number[T](), n, 1024)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, o, 1, bytesOf(got), bytesOf(a))
	same(t, "sums of squares", Bound{}, got, sums)
}
