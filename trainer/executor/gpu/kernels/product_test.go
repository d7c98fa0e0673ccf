package kernels_test

import (
	"fmt"
	"math"
	"testing"

	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/gorgonia"
)

func TestProductsMatchCPU(t *testing.T) {
	for i, s := range [][3]int{{1, 1, 1}, {6, 1, 1}, {32, 33, 31}, {65, 63, 17}, {3, 129, 33}} {
		for turns := range 4 {
			p := Matrices{Count: 1, M: s[0], N: s[1], K: s[2], TransA: turns%2 == 1, TransB: turns/2 == 1, Bias: turns == 0 && i%2 == 0}
			t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
				checkProduct[float32](t, p)
				if i == 2 {
					checkProduct[float64](t, p)
				}
			})
		}
	}
	batch := Matrices{Count: 3, M: 17, N: 33, K: 5}
	bothTypes(t, "batch", func(t *testing.T) { checkProduct[float32](t, batch) }, func(t *testing.T) { checkProduct[float64](t, batch) })
	t.Run("long", func(t *testing.T) { checkProduct[float32](t, Matrices{Count: 2, M: 3, N: 5, K: 1030}) })
}

func checkProduct[T float](t *testing.T, p Matrices) {
	a, b, bias := noise[T](1, p.Count*p.M*p.K), noise[T](2, p.Count*p.K*p.N), noise[T](3, p.N)
	build, shapeA, shapeB := graphProduct(p)
	operands := []array[T]{of(a, shapeA...), of(b, shapeB...)}
	inputs := [][]T{a, b}
	if p.Bias {
		build = func(in gorgonia.Nodes) (*gorgonia.Node, error) { return ops.Linear(in[0], in[1], in[2]) }
		operands, inputs = append(operands, of(bias, p.N)), append(inputs, bias)
	}
	want := onCPU(t, 0, nil, build, operands...)
	got := compute(t, p.Count*p.M*p.N, inputs...)(Product(number[T](), p))
	same(t, "product", BoundOf("matrix product", number[T]()), got, want.out, slackOf(p, a, b)...)
}

// slackOf returns, for each element of a product, the number of its terms
// times the sum of their absolute values. A bias counts as 10.
func slackOf[T float](p Matrices, a, b []T) []float64 {
	slack := make([]float64, p.Count*p.M*p.N)
	downA, alongA, downB, alongB := p.K, 1, p.N, 1
	if p.TransA {
		downA, alongA = 1, p.M
	}
	if p.TransB {
		downB, alongB = 1, p.K
	}
	for at := range slack {
		pair, i, j := at/(p.M*p.N), at/p.N%p.M, at%p.N
		sum := 10.0
		for k := range p.K {
			sum += math.Abs(float64(a[pair*p.M*p.K+i*downA+k*alongA]) * float64(b[pair*p.K*p.N+k*downB+j*alongB]))
		}
		slack[at] = float64(p.K) * sum
	}
	return slack
}

// graphProduct returns Gorgonia's operation for product p, and the shapes of
// its operands a and b.
func graphProduct(p Matrices) (build func(gorgonia.Nodes) (*gorgonia.Node, error), a, b []int) {
	a, b = []int{p.M, p.K}, []int{p.K, p.N}
	if p.TransA {
		a = []int{p.K, p.M}
	}
	if p.TransB {
		b = []int{p.N, p.K}
	}
	if p.Count > 1 {
		return func(in gorgonia.Nodes) (*gorgonia.Node, error) { return gorgonia.BatchedMatMul(in[0], in[1]) },
			append([]int{p.Count}, a...), append([]int{p.Count}, b...)
	}
	return func(in gorgonia.Nodes) (*gorgonia.Node, error) {
		x, y := in[0], in[1]
		if p.TransA {
			x = gorgonia.Must(gorgonia.Transpose(x))
		}
		if p.TransB {
			y = gorgonia.Must(gorgonia.Transpose(y))
		}
		return gorgonia.Mul(x, y)
	}, a, b
}

// A product whose sums are not divided into parts adds in ascending order,
// whatever its tiles are. A row of a large product therefore has the same bits
// as a product of that row alone.
func TestProductOfFewerRowsHasSameBits(t *testing.T) {
	const m, n, k = 100, 70, 50
	a, b := noise[float32](4, m*k), noise[float32](5, k*n)
	want := compute(t, m*n, a, b)(Product(Float32, Matrices{Count: 1, M: m, N: n, K: k}))
	got := compute(t, n, a[90*k:91*k], b)(Product(Float32, Matrices{Count: 1, M: 1, N: n, K: k}))
	same(t, "row 90", Bound{}, got, want[90*n:91*n])
}

// Large tiles give the same bits as small ones. The test forces large tiles,
// because the stand-in for a GPU is too slow for a product that is large
// enough.
func TestLargeTilesGiveSameBits(t *testing.T) {
	const m, n, k = 130, 20, 18
	a, b := noise[float32](6, m*k), noise[float32](7, k*n)
	for turns := range 4 {
		p := Matrices{Count: 1, M: m, N: n, K: k, TransA: turns%2 == 1, TransB: turns/2 == 1}
		o, err := Product(Float32, p)
		want := compute(t, m*n, a, b)(o, err)
		o.Launches[0].Kernel = "large_" + o.Launches[0].Kernel
		o.Launches[0].Grid = [3]uint32{1, 2, 1}
		same(t, fmt.Sprintf("%+v", p), Bound{}, compute(t, m*n, a, b)(o, nil), want)
	}
	for _, p := range []Matrices{{Count: 1, M: 2048, N: 1024, K: 64}, {Count: 128, M: 128, N: 128, K: 5}} {
		o, err := Product(Float32, p)
		if err != nil || o.Launches[0].Kernel != "large_product_nn_f32" {
			t.Errorf("%+v: %v, %v", p, o.Launches, err)
		}
	}
}

func TestMatVecMatchesCPU(t *testing.T) {
	for _, s := range [][2]int{{1, 1}, {31, 33}, {257, 5}, {5, 1500}, {1009, 3}, {3, 255}} {
		for _, trans := range []bool{false, true} {
			bothTypes(t, fmt.Sprint(s, trans), func(t *testing.T) { checkMatVec[float32](t, s[0], s[1], trans) },
				func(t *testing.T) { checkMatVec[float64](t, s[0], s[1], trans) })
		}
	}
}

func checkMatVec[T float](t *testing.T, rows, columns int, trans bool) {
	m, k := rows, columns
	if trans {
		m, k = columns, rows
	}
	a, x := noise[T](6, rows*columns), noise[T](7, k)
	want := onCPU(t, 0, nil, func(in gorgonia.Nodes) (*gorgonia.Node, error) {
		if trans {
			return gorgonia.Mul(gorgonia.Must(gorgonia.Transpose(in[0])), in[1])
		}
		return gorgonia.Mul(in[0], in[1])
	}, of(a, rows, columns), of(x, k))
	slack := make([]float64, m)
	for i, v := range compute(t, m, magnitudes(a), magnitudes(x))(MatVec(number[T](), rows, columns, trans)) {
		slack[i] = float64(k) * float64(v)
	}
	same(t, "product", BoundOf("matrix times vector", number[T]()), compute(t, m, a, x)(MatVec(number[T](), rows, columns, trans)), want.out, slack...)
}

func TestOuterMatchesCPU(t *testing.T) {
	a, b := noise[float32](8, 33), noise[float32](9, 31)
	want := onCPU(t, 0, nil, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return gorgonia.OuterProd(in[0], in[1]) }, of(a, 33), of(b, 31))
	same(t, "outer", Bound{}, compute(t, 33*31, a, b)(Outer(Float32, 33, 31)), want.out)
}

// An empty sum is zero.
func TestEmptySums(t *testing.T) {
	for _, v := range compute(t, 6, []float32{}, []float32{})(Product(Float32, Matrices{Count: 1, M: 2, N: 3})) {
		if v != 0 {
			t.Errorf("an element of an empty product is %v", v)
		}
	}
}
