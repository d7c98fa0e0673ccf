package kernels_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/gorgonia"
)

// lengths are prime numbers, and sizes around those of a warp (32 threads) and
// a block (256).
var lengths = []int{1, 2, 7, 31, 32, 33, 97, 255, 256, 257, 1009}

type function func(*gorgonia.Node) (*gorgonia.Node, error)

var functions = map[string]function{
	"abs": gorgonia.Abs, "sign": gorgonia.Sign, "ceil": gorgonia.Ceil, "floor": gorgonia.Floor, "neg": gorgonia.Neg, "square": gorgonia.Square,
	"cube": gorgonia.Cube, "sqrt": gorgonia.Sqrt, "inv": gorgonia.Inverse, "invSqrt": gorgonia.InverseSqrt, "exp": gorgonia.Exp,
	"ln": gorgonia.Log, "log2": gorgonia.Log2, "log1p": gorgonia.Log1p, "expm1": gorgonia.Expm1, "tanh": gorgonia.Tanh,
	"sigmoid": gorgonia.Sigmoid, "softplus": gorgonia.Softplus, "nn.relu": ops.Relu, "nn.tanh": ops.Tanh, "nn.sigmoid": ops.Sigmoid,
}

// operators maps codes of Gorgonia's binary operators to the functions that
// add them to a graph.
var operators = map[string]func(a, b *gorgonia.Node) (*gorgonia.Node, error){
	"+": gorgonia.Add, "-": gorgonia.Sub, "⊙": gorgonia.HadamardProd, "÷": gorgonia.HadamardDiv, "^": gorgonia.Pow,
	"<":  func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Lt(a, b, true) },
	">":  func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Gt(a, b, true) },
	"<=": func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Lte(a, b, true) },
	">=": func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Gte(a, b, true) },
	"==": func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Eq(a, b, true) },
	"!=": func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Ne(a, b, true) },
}

// special returns numbers at which functions change their behaviour, and
// numbers of many sizes and both signs.
func special[T float]() []T {
	x := []T{0, T(math.Copysign(0, -1)), 1, -1, 0.5, -0.5, 2, T(math.Inf(1)), T(math.Inf(-1)), T(math.NaN()),
		T(math.SmallestNonzeroFloat64), math.SmallestNonzeroFloat32, 1e-40, -1e-40, math.MaxFloat32, 88.7, 88.8, 89, -87.5, -103.5, -104.5,
		9.01, 9.02, 9.03, 40, -40, 709.7, 709.8, -745, -746, 22, 0.347, -0.347, 0.3999, 0.4001, -0.25, -0.9999, -1.5}
	for e := -60; e <= 60; e++ {
		v := math.Pow(2, float64(e)/2) * 1.2345
		x = append(x, T(v), T(-v))
	}
	for i := -400; i <= 400; i += 3 {
		x = append(x, T(float64(i)*0.0517+0.0003))
	}
	return append(x, noise[T](1, 500)...)
}

func TestUnaryFunctionsMatchCPU(t *testing.T) {
	for code, f := range functions {
		t.Run(code, func(t *testing.T) {
			checkFunction[float32](t, code, f)
			checkFunction[float64](t, code, f)
		})
	}
}

func checkFunction[T float](t *testing.T, code string, f function) {
	t.Helper()
	x := special[T]()
	want := onCPU(t, 0, nil, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return f(in[0]) }, of(x, len(x)))
	o, err := Unary(number[T](), code, len(x))
	got := compute(t, len(x), x)(o, err)
	same(t, code+" in one block", Bound{}, compute(t, len(x), x)(inOneBlock(o), nil), got)
	b := BoundOf(code, number[T]())
	for i := range x {
		what := fmt.Sprintf("%s(%v) of %T", code, x[i], x[i])
		if !b.Exact {
			same(t, what, b, got[i:i+1], want.out[i:i+1])
		} else if off := offExact(code, float64(x[i]), float64(got[i])); off > b.ULPs {
			t.Errorf("%s: %v is %.2f units in the last place off, want at most %v", what, got[i], off, b.ULPs)
		}
	}
}

func TestBinaryOperatorsMatchCPU(t *testing.T) {
	for code, f := range operators {
		t.Run(code, func(t *testing.T) {
			checkOperator[float32](t, code, f)
			checkOperator[float64](t, code, f)
		})
	}
}

func checkOperator[T float](t *testing.T, code string, f func(a, b *gorgonia.Node) (*gorgonia.Node, error)) {
	t.Helper()
	build := func(in gorgonia.Nodes) (*gorgonia.Node, error) { return f(in[0], in[1]) }
	x := special[T]()[:75]
	var a, b []T
	for i := range x {
		for k := 0; k < len(x); k += 4 {
			a, b = append(a, x[i]), append(b, x[(i+k)%len(x)])
		}
	}
	want := onCPU(t, 0, nil, build, of(a, len(a)), of(b, len(b)))
	o, err := Binary(number[T](), code, len(a), len(a), len(b))
	got := compute(t, len(a), a, b)(o, err)
	same(t, code+" in one block", Bound{}, compute(t, len(a), a, b)(inOneBlock(o), nil), got)
	bound := BoundOf(code, number[T]())
	for i := range a {
		what := fmt.Sprintf("%v %s %v of %T", a[i], code, b[i], a[i])
		if x, y := float64(a[i]), float64(b[i]); bound.Exact && exactPower(x, y) != nil {
			if off := offBy(exactPower(x, y), float64(got[i])); off > bound.ULPs {
				t.Errorf("%s: %v is %.2f units in the last place off, want at most %v", what, got[i], off, bound.ULPs)
			}
			continue
		}
		same(t, what, Bound{ULPs: bound.ULPs}, got[i:i+1], want.out[i:i+1])
	}
	for _, n := range lengths {
		a, b := noise[T](2, n), noise[T](3, 1)
		for i := range a {
			a[i] = T(math.Abs(float64(a[i])))
		}
		scalar := func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			s, err := gorgonia.Sum(in[1])
			if err != nil {
				return nil, err
			}
			return f(in[0], s)
		}
		if n > 1 {
			want := onCPU(t, 0, nil, scalar, of(a, n), of(b, 1))
			loose := bound
			if bound.Exact {
				loose = Bound{ULPs: 100} // the CPU's own powers have larger errors than the bound
			}
			same(t, code+" with a number", loose, compute(t, n, a, b)(Binary(number[T](), code, n, n, 1)), want.out)
		}
	}
}

// inOneBlock returns operation o with a grid of one block, so that each thread
// computes several elements.
func inOneBlock(o Operation) Operation {
	l := o.Launches[0]
	l.Grid[0] = 1
	o.Launches = []Launch{l}
	return o
}

// A kernel returns the same bits with a smaller grid.
func TestGridSizeDoesNotChangeBits(t *testing.T) {
	const n = 5000
	x := noise[float32](4, n)
	for _, code := range []string{"tanh", "nn.relu", "+"} {
		o, err := Unary(Float32, code, n)
		inputs := [][]float32{x}
		if code == "+" {
			o, err = Binary(Float32, code, n, n, n)
			inputs = append(inputs, noise[float32](5, n))
		}
		want := compute(t, n, inputs...)(o, err)
		for _, blocks := range []uint32{1, 2, 3, 5, 19, 40} {
			o.Launches[0].Grid[0] = blocks
			same(t, fmt.Sprintf("%s in %d blocks", code, blocks), Bound{}, compute(t, n, inputs...)(o, nil), want)
		}
	}
}

// broadcasts maps codes to Gorgonia's operators whose second operand is
// repeated along some dimensions.
var broadcasts = map[string]func(a, b *gorgonia.Node, left, right []byte) (*gorgonia.Node, error){
	"+": gorgonia.BroadcastAdd, "-": gorgonia.BroadcastSub, "⊙": gorgonia.BroadcastHadamardProd, "÷": gorgonia.BroadcastHadamardDiv, "^": gorgonia.BroadcastPow,
	"<": func(a, b *gorgonia.Node, l, r []byte) (*gorgonia.Node, error) {
		return gorgonia.BroadcastLt(a, b, true, l, r)
	},
	">": func(a, b *gorgonia.Node, l, r []byte) (*gorgonia.Node, error) {
		return gorgonia.BroadcastGt(a, b, true, l, r)
	},
	"<=": func(a, b *gorgonia.Node, l, r []byte) (*gorgonia.Node, error) {
		return gorgonia.BroadcastLte(a, b, true, l, r)
	},
	">=": func(a, b *gorgonia.Node, l, r []byte) (*gorgonia.Node, error) {
		return gorgonia.BroadcastGte(a, b, true, l, r)
	},
	"==": func(a, b *gorgonia.Node, l, r []byte) (*gorgonia.Node, error) {
		return gorgonia.BroadcastEq(a, b, true, l, r)
	},
	"!=": func(a, b *gorgonia.Node, l, r []byte) (*gorgonia.Node, error) {
		return gorgonia.BroadcastNe(a, b, true, l, r)
	},
}

func TestBroadcastOperatorsMatchCPU(t *testing.T) {
	for code := range broadcasts {
		for _, shape := range [][2][]int{{{5, 7}, {1, 7}}, {{5, 7}, {5, 1}}, {{3, 4, 5, 6}, {1, 4, 1, 6}}, {{33, 31}, {33, 1}}, {{257, 3}, {1, 3}}} {
			checkSpread[float32](t, code, shape[0], shape[1])
			checkSpread[float64](t, code, shape[0], shape[1])
		}
	}
}

func checkSpread[T float](t *testing.T, code string, shape, repeated []int) {
	t.Helper()
	n, m := size(shape), size(repeated)
	a, b := magnitudes(noise[T](5, n)), noise[T](6, m)
	var along []byte
	strides, stride := make([]int, len(shape)), 1
	for i := len(shape) - 1; i >= 0; i-- {
		if repeated[i] == 1 {
			along = append([]byte{byte(i)}, along...)
		} else {
			strides[i] = stride
			stride *= shape[i]
		}
	}
	want := onCPU(t, 0, nil, func(in gorgonia.Nodes) (*gorgonia.Node, error) {
		return broadcasts[code](in[0], in[1], nil, along)
	}, of(a, shape...), of(b, repeated...))
	bound := BoundOf(code, number[T]())
	if bound.Exact {
		bound = Bound{ULPs: 100} // the CPU's own powers have larger errors than the bound
	}
	o, err := Spread(number[T](), code, shape, rowMajor(shape), strides)
	same(t, fmt.Sprint(shape, code, repeated), bound, compute(t, n, a, b)(o, err), want.out)
}

func size(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}

func rowMajor(shape []int) []int {
	s, n := make([]int, len(shape)), 1
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= shape[i]
	}
	return s
}

func TestActivationGradientsMatchCPU(t *testing.T) {
	for _, code := range []string{"nn.relu", "nn.tanh", "nn.sigmoid", "tanh"} {
		checkActivation[float32](t, code)
		checkActivation[float64](t, code)
	}
}

func checkActivation[T float](t *testing.T, code string) {
	t.Helper()
	for _, n := range lengths {
		x, dy := noise[T](7, n), noise[T](8, n)
		want := onCPU(t, 1, dy, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return functions[code](in[0]) }, of(x, n))
		got := compute(t, n, want.out, dy)(Binary(number[T](), code+" gradient", n, n, n))
		same(t, "gradient of "+code, Bound{}, got, want.gradients[0])
	}
}

func TestAddBiasMatchesCPU(t *testing.T) {
	for _, s := range [][]int{{1, 1}, {5, 7}, {33, 31}, {2, 3, 4, 5}, {3, 16, 17, 1}} {
		checkAddBias[float32](t, s)
		checkAddBias[float64](t, s)
	}
}

func checkAddBias[T float](t *testing.T, s []int) {
	t.Helper()
	x, b := noise[T](9, size(s)), noise[T](10, s[1])
	want := onCPU(t, 0, nil, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return ops.AddBias(in[0], in[1]) }, of(x, s...), of(b, s[1]))
	o, err := AddBias(number[T](), s[0], s[1], size(s[2:]))
	same(t, fmt.Sprint("bias of ", s), Bound{}, compute(t, len(x), x, b)(o, err), want.out)
}

func TestMinAndMaxMatchCPU(t *testing.T) {
	bothTypes(t, "", checkMinAndMax[float32], checkMinAndMax[float64])
}

func checkMinAndMax[T float](t *testing.T) {
	x, typ := special[T]()[:60], number[T]()
	for _, a := range x {
		b := slices.Repeat([]T{a}, len(x))
		var low, high []T
		for i := range x {
			low, high = append(low, min(x[i], b[i])), append(high, max(x[i], b[i]))
		}
		same(t, "min", Bound{}, compute(t, len(x), x, b)(Binary(typ, "min", len(x), len(x), len(x))), low)
		same(t, "max", Bound{}, compute(t, len(x), x, b)(Binary(typ, "max", len(x), len(x), len(x))), high)
	}
}
