package rewrite

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type nodes = gorgonia.Nodes

type unary = func(*gorgonia.Node) (*gorgonia.Node, error)

// elementwise lists Gorgonia's functions of one number.
var elementwise = []struct {
	name     string
	f        unary
	want     func(float64) float64
	positive bool
	flat     bool
}{
	{"Abs", gorgonia.Abs, math.Abs, false, false},
	{"Sign", gorgonia.Sign, sign, false, true},
	{"Ceil", gorgonia.Ceil, math.Ceil, false, true},
	{"Floor", gorgonia.Floor, math.Floor, false, true},
	{"Sin", gorgonia.Sin, math.Sin, false, false},
	{"Cos", gorgonia.Cos, math.Cos, false, false},
	{"Exp", gorgonia.Exp, math.Exp, false, false},
	{"Log", gorgonia.Log, math.Log, true, false},
	{"Log2", gorgonia.Log2, math.Log2, true, true},
	{"Neg", gorgonia.Neg, func(x float64) float64 { return -x }, false, false},
	{"Square", gorgonia.Square, func(x float64) float64 { return x * x }, false, false},
	{"Sqrt", gorgonia.Sqrt, math.Sqrt, true, false},
	{"Inverse", gorgonia.Inverse, func(x float64) float64 { return 1 / x }, true, false},
	{"InverseSqrt", gorgonia.InverseSqrt, func(x float64) float64 { return 1 / math.Sqrt(x) }, true, true},
	{"Cube", gorgonia.Cube, func(x float64) float64 { return x * x * x }, false, false},
	{"Tanh", gorgonia.Tanh, math.Tanh, false, false},
	{"Sigmoid", gorgonia.Sigmoid, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, false, false},
	{"Log1p", gorgonia.Log1p, math.Log1p, true, false},
	{"Expm1", gorgonia.Expm1, math.Expm1, false, false},
	{"Softplus", gorgonia.Softplus, func(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }, false, false},
	{"Rectify", gorgonia.Rectify, func(x float64) float64 { return x * one(x >= 0) }, false, false},
	{"LeakyRelu", func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.LeakyRelu(x, 0.1) },
		func(x float64) float64 { return x*one(x >= 0) + 0.1*(x*one(x < 0)) }, false, false},
	{"Mish", gorgonia.Mish, func(x float64) float64 {
		return x * math.Tanh(math.Max(x, 0)+math.Log1p(math.Exp(-math.Abs(x))))
	}, false, false},
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

type binary = func(a, b *gorgonia.Node) (*gorgonia.Node, error)
type broadcast = func(a, b *gorgonia.Node, left, right []byte) (*gorgonia.Node, error)

// comparison returns a binary function that converts the result of a
// comparison to numbers.
func comparison(f func(a, b *gorgonia.Node, same bool) (*gorgonia.Node, error)) binary {
	return func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return f(a, b, true) }
}

func broadcastComparison(f func(a, b *gorgonia.Node, same bool, left, right []byte) (*gorgonia.Node, error)) broadcast {
	return func(a, b *gorgonia.Node, left, right []byte) (*gorgonia.Node, error) {
		return f(a, b, true, left, right)
	}
}

// pairwise lists Gorgonia's functions of two numbers.
var pairwise = []struct {
	name      string
	f         binary
	broadcast broadcast
	want      func(x, y float64) float64
	flat      bool
}{
	{"Add", gorgonia.Add, gorgonia.BroadcastAdd, func(x, y float64) float64 { return x + y }, false},
	{"Sub", gorgonia.Sub, gorgonia.BroadcastSub, func(x, y float64) float64 { return x - y }, false},
	{"HadamardProd", gorgonia.HadamardProd, gorgonia.BroadcastHadamardProd, func(x, y float64) float64 { return x * y }, false},
	{"HadamardDiv", gorgonia.HadamardDiv, gorgonia.BroadcastHadamardDiv, func(x, y float64) float64 { return x / y }, false},
	{"Div", gorgonia.Div, nil, func(x, y float64) float64 { return x / y }, false},
	{"Pow", gorgonia.Pow, gorgonia.BroadcastPow, math.Pow, false},
	{"Lt", comparison(gorgonia.Lt), broadcastComparison(gorgonia.BroadcastLt), func(x, y float64) float64 { return one(x < y) }, true},
	{"Gt", comparison(gorgonia.Gt), broadcastComparison(gorgonia.BroadcastGt), func(x, y float64) float64 { return one(x > y) }, true},
	{"Lte", comparison(gorgonia.Lte), broadcastComparison(gorgonia.BroadcastLte), func(x, y float64) float64 { return one(x <= y) }, true},
	{"Gte", comparison(gorgonia.Gte), broadcastComparison(gorgonia.BroadcastGte), func(x, y float64) float64 { return one(x >= y) }, true},
	{"Eq", comparison(gorgonia.Eq), broadcastComparison(gorgonia.BroadcastEq), func(x, y float64) float64 { return one(x == y) }, true},
	{"Ne", comparison(gorgonia.Ne), broadcastComparison(gorgonia.BroadcastNe), func(x, y float64) float64 { return one(x != y) }, true},
	{"MinBetween", gorgonia.MinBetween, nil, func(x, y float64) float64 { return -larger(-x, -y) }, false},
	{"MaxBetween", gorgonia.MaxBetween, nil, larger, false},
}

// twins returns tests of Gorgonia's operations. The operands have few rows and
// many columns, or many rows and few columns.
func twins(few, many int) (all []twin) {
	wide, tall := []int{few, many}, []int{many, few}
	for _, e := range elementwise {
		for i, shape := range [][]int{wide, tall, {1, 5}, {1}} {
			all = append(all, twin{fmt.Sprintf("%s:%v", e.name, i), [][]int{shape}, func(v nodes) (*gorgonia.Node, error) { return e.f(v[0]) },
				func(v []array) array { return of(shape, func(i []int) float64 { return e.want(v[0].at(i...)) }) }, e.positive, e.flat})
		}
	}
	for _, e := range pairwise {
		all = append(all, pairs(e.name, e.f, e.want, e.flat, wide, tall)...)
		if e.broadcast != nil {
			all = append(all, broadcasts("Broadcast"+e.name, e.broadcast, e.want, e.flat, few, many)...)
		}
	}
	return slices.Concat(all, reductions(few, many), products(few, many), moves(few, many), layers(few, many), combined(few, many), windows(few, many))
}

func pairs(name string, f binary, want func(x, y float64) float64, flat bool, shapes ...[]int) (all []twin) {
	two := func(v nodes) (*gorgonia.Node, error) { return f(v[0], v[1]) }
	for i, shape := range shapes {
		all = append(all, twin{fmt.Sprint(name, ":", i), [][]int{shape, shape}, two,
			func(v []array) array {
				return of(shape, func(i []int) float64 { return want(v[0].at(i...), v[1].at(i...)) })
			}, true, flat})
	}
	if name == "MinBetween" || name == "MaxBetween" {
		return all
	}
	shape := shapes[0]
	sum := func(n *gorgonia.Node) *gorgonia.Node { return gorgonia.Must(gorgonia.Sum(n)) }
	return append(all,
		twin{name + ":number", [][]int{shape, {1}}, func(v nodes) (*gorgonia.Node, error) { return f(v[0], sum(v[1])) },
			func(v []array) array {
				return of(shape, func(i []int) float64 { return want(v[0].at(i...), v[1].at(0)) })
			}, true, flat},
		twin{name + ":of number", [][]int{shape, {1}}, func(v nodes) (*gorgonia.Node, error) { return f(sum(v[1]), v[0]) },
			func(v []array) array {
				return of(shape, func(i []int) float64 { return want(v[1].at(0), v[0].at(i...)) })
			}, true, flat})
}

// broadcasts returns tests of a binary function whose first, second or both
// operands are repeated.
func broadcasts(name string, f broadcast, want func(x, y float64) float64, flat bool, few, many int) (all []twin) {
	for i, c := range []struct {
		a, b        []int
		left, right []byte
	}{
		{[]int{few, many}, []int{1, many}, nil, []byte{0}},
		{[]int{few, 1}, []int{few, many}, []byte{1}, nil},
		{[]int{many, 1}, []int{1, few}, []byte{1}, []byte{0}},
		{[]int{2, many, 3}, []int{1, many, 1}, nil, []byte{0, 2}},
		{[]int{2, 1, many}, []int{2, 3, many}, []byte{1}, nil},
	} {
		shape := make([]int, len(c.a))
		for d := range shape {
			shape[d] = max(c.a[d], c.b[d])
		}
		all = append(all, twin{fmt.Sprint(name, ":", i), [][]int{c.a, c.b}, func(v nodes) (*gorgonia.Node, error) { return f(v[0], v[1], c.left, c.right) },
			func(v []array) array {
				return of(shape, func(i []int) float64 { return want(v[0].repeated(i), v[1].repeated(i)) })
			}, true, flat})
	}
	return all
}

// repeated returns the element of a at index i, as if dimensions of size 1
// were repeated.
func (a array) repeated(i []int) float64 {
	at := slices.Clone(i)
	for d := range at {
		if a.shape[d] == 1 {
			at[d] = 0
		}
	}
	return a.at(at...)
}

// over combines the elements of a along axes with function f, beginning with
// first.
func (a array) over(axes []int, first float64, f func(sum, x float64) float64) array {
	var shape []int
	for d, n := range a.shape {
		if !slices.Contains(axes, d) {
			shape = append(shape, n)
		}
	}
	out := of(shape, func([]int) float64 { return first })
	of(a.shape, func(i []int) float64 {
		n := 0
		for d, x := range i {
			if !slices.Contains(axes, d) {
				n = n*a.shape[d] + x
			}
		}
		out.data[n] = f(out.data[n], a.at(i...))
		return 0
	})
	return out
}

// larger returns the larger of x and y, or NaN if one of them is NaN.
func larger(x, y float64) float64 {
	if x > y || x != x {
		return x
	}
	return y
}

func add(x, y float64) float64 { return x + y }

func reductions(few, many int) (all []twin) {
	for i, c := range []struct{ shape, axes []int }{
		{[]int{many}, []int{0}}, {[]int{few, many}, []int{0, 1}}, {[]int{few, many}, []int{1}}, {[]int{many, few}, []int{0}}, {[]int{many, few}, []int{1}},
		{[]int{2, many, 3}, []int{1}}, {[]int{2, many, 3}, []int{0, 2}}, {[]int{2, 3, many}, []int{1, 2}}, {[]int{1, many}, []int{0}}, {[]int{many, 1}, []int{1}},
	} {
		n := 1
		for _, d := range c.axes {
			n *= c.shape[d]
		}
		reduced := func(name string, f func(*gorgonia.Node, ...int) (*gorgonia.Node, error), want func(array) array) twin {
			return twin{fmt.Sprint(name, ":", i), [][]int{c.shape}, func(v nodes) (*gorgonia.Node, error) { return f(v[0], slices.Clone(c.axes)...) },
				func(v []array) array { return want(v[0]) }, false, false}
		}
		all = append(all,
			reduced("Sum", gorgonia.Sum, func(a array) array { return a.over(c.axes, 0, add) }),
			reduced("Mean", gorgonia.Mean, func(a array) array {
				sum := a.over(c.axes, 0, add)
				return of(sum.shape, func(i []int) float64 { return sum.at(i...) / float64(n) })
			}),
			reduced("Max", gorgonia.Max, func(a array) array { return a.over(c.axes, math.Inf(-1), larger) }))
	}
	norm := func(p int) twin {
		return twin{fmt.Sprint("Norm:", p), [][]int{{few, many}}, func(v nodes) (*gorgonia.Node, error) {
			x := v[0]
			if p%2 == 1 {
				x = gorgonia.Must(gorgonia.Abs(x))
			}
			return gorgonia.Norm(x, 1, p)
		},
			func(v []array) array {
				sum := v[0].over([]int{1}, 0, func(s, x float64) float64 { return s + math.Pow(math.Abs(x), float64(p)) })
				return of(sum.shape, func(i []int) float64 { return math.Pow(sum.at(i...), 1/float64(p)) })
			}, false, false}
	}
	return append(all, norm(1), norm(2), norm(3), norm(4),
		twin{"KeepDims", [][]int{{few, many}}, func(v nodes) (*gorgonia.Node, error) {
			return gorgonia.KeepDims(v[0], false, func(a *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Sum(a, 1) })
		}, func(v []array) array { return array{[]int{few, 1}, v[0].over([]int{1}, 0, add).data} }, false, false},
		twin{"ReduceAdd", [][]int{{many}, {many}, {many}}, func(v nodes) (*gorgonia.Node, error) { return gorgonia.ReduceAdd(v) },
			func(v []array) array {
				return of([]int{many}, func(i []int) float64 { return v[0].at(i...) + v[1].at(i...) + v[2].at(i...) })
			}, false, false})
}

// product adds n products.
func product(shape []int, n int, a, b func(i []int, k int) float64) array {
	return of(shape, func(i []int) (sum float64) {
		for k := range n {
			sum += a(i, k) * b(i, k)
		}
		return sum
	})
}

func products(few, many int) []twin {
	two := func(f binary) func(v nodes) (*gorgonia.Node, error) {
		return func(v nodes) (*gorgonia.Node, error) { return f(v[0], v[1]) }
	}
	batched := func(turn ...bool) func(v nodes) (*gorgonia.Node, error) {
		return func(v nodes) (*gorgonia.Node, error) { return gorgonia.BatchedMatMul(v[0], v[1], turn...) }
	}
	matrices := func(m, n, k int) twin {
		return twin{fmt.Sprintf("Mul:%d,%d,%d", m, n, k), [][]int{{m, k}, {k, n}}, two(gorgonia.Mul), func(v []array) array {
			return product([]int{m, n}, k, func(i []int, k int) float64 { return v[0].at(i[0], k) }, func(i []int, k int) float64 { return v[1].at(k, i[1]) })
		}, false, false}
	}
	return []twin{
		matrices(few, 3, many), matrices(many, 3, few), matrices(few, many, 3), matrices(1, 1, many), matrices(1, many, 1),
		{"Mul:vector", [][]int{{few, many}, {many}}, two(gorgonia.Mul), func(v []array) array {
			return product([]int{few}, many, func(i []int, k int) float64 { return v[0].at(i[0], k) }, func(_ []int, k int) float64 { return v[1].at(k) })
		}, false, false},
		{"Mul:of vector", [][]int{{many}, {many, few}}, two(gorgonia.Mul), func(v []array) array {
			return product([]int{few}, many, func(_ []int, k int) float64 { return v[0].at(k) }, func(i []int, k int) float64 { return v[1].at(k, i[0]) })
		}, false, false},
		{"Mul:vectors", [][]int{{many}, {many}}, two(gorgonia.Mul), func(v []array) array {
			return product(nil, many, func(_ []int, k int) float64 { return v[0].at(k) }, func(_ []int, k int) float64 { return v[1].at(k) })
		}, false, false},
		{"ReduceMul", [][]int{{2, 3}, {3, many}, {many, 2}}, func(v nodes) (*gorgonia.Node, error) { return gorgonia.ReduceMul(v) }, func(v []array) array {
			ab := product([]int{2, many}, 3, func(i []int, k int) float64 { return v[0].at(i[0], k) }, func(i []int, k int) float64 { return v[1].at(k, i[1]) })
			return product([]int{2, 2}, many, func(i []int, k int) float64 { return ab.at(i[0], k) }, func(i []int, k int) float64 { return v[2].at(k, i[1]) })
		}, false, false},
		{"OuterProd", [][]int{{few}, {many}}, two(gorgonia.OuterProd), func(v []array) array {
			return of([]int{few, many}, func(i []int) float64 { return v[0].at(i[0]) * v[1].at(i[1]) })
		}, false, true},
		{"BatchedMatMul:0", [][]int{{many, 2, 3}, {many, 3, 2}}, batched(), func(v []array) array {
			return product([]int{many, 2, 2}, 3, func(i []int, k int) float64 { return v[0].at(i[0], i[1], k) }, func(i []int, k int) float64 { return v[1].at(i[0], k, i[2]) })
		}, false, false},
		{"BatchedMatMul:1", [][]int{{2, 3, many}, {2, 2, many}}, batched(false, true), func(v []array) array {
			return product([]int{2, 3, 2}, many, func(i []int, k int) float64 { return v[0].at(i[0], i[1], k) }, func(i []int, k int) float64 { return v[1].at(i[0], i[2], k) })
		}, false, false},
		{"BatchedMatMul:2", [][]int{{2, 3, many}, {2, 3, 2}}, batched(true, false), func(v []array) array {
			return product([]int{2, many, 2}, 3, func(i []int, k int) float64 { return v[0].at(i[0], k, i[1]) }, func(i []int, k int) float64 { return v[1].at(i[0], k, i[2]) })
		}, false, false},
		{"BatchedMatMul:3", [][]int{{2, 2, 3, many}, {2, 2, many, 2}}, batched(), func(v []array) array {
			return product([]int{2, 2, 3, 2}, many, func(i []int, k int) float64 { return v[0].at(i[0], i[1], i[2], k) }, func(i []int, k int) float64 { return v[1].at(i[0], i[1], k, i[3]) })
		}, false, false},
		{"Tensordot:0", [][]int{{2, many, 3}, {many, 2}}, func(v nodes) (*gorgonia.Node, error) {
			return gorgonia.Tensordot([]int{1}, []int{0}, v[0], v[1])
		}, func(v []array) array {
			return product([]int{2, 3, 2}, many, func(i []int, k int) float64 { return v[0].at(i[0], k, i[1]) }, func(i []int, k int) float64 { return v[1].at(k, i[2]) })
		}, false, false},
		{"Tensordot:1", [][]int{{2, many}, {3, many}}, func(v nodes) (*gorgonia.Node, error) {
			return gorgonia.Tensordot([]int{1}, []int{1}, v[0], v[1])
		}, func(v []array) array {
			return product([]int{2, 3}, many, func(i []int, k int) float64 { return v[0].at(i[0], k) }, func(i []int, k int) float64 { return v[1].at(i[1], k) })
		}, false, false},
	}
}

func moves(few, many int) (all []twin) {
	moved := func(name string, shape []int, f unary, to []int, from func(a array, i []int) float64) {
		all = append(all, twin{name, [][]int{shape}, func(v nodes) (*gorgonia.Node, error) { return f(v[0]) },
			func(v []array) array { return of(to, func(i []int) float64 { return from(v[0], i) }) }, false, false})
	}
	sliced := func(name string, shape []int, to []int, from func(a array, i []int) float64, s ...tensor.Slice) {
		moved("Slice:"+name, shape, func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Slice(x, s...) }, to, from)
	}
	sliced("columns", []int{few, many}, []int{few, many - 257}, func(a array, i []int) float64 { return a.at(i[0], i[1]+257) }, nil, gorgonia.S(257, many))
	sliced("rows", []int{many, few}, []int{many - 256, few}, func(a array, i []int) float64 { return a.at(i[0]+256, i[1]) }, gorgonia.S(256, many))
	sliced("row", []int{many, few}, []int{few}, func(a array, i []int) float64 { return a.at(many-1, i[0]) }, gorgonia.S(many-1))
	sliced("column", []int{few, many}, []int{few}, func(a array, i []int) float64 { return a.at(i[0], 256) }, nil, gorgonia.S(256))
	sliced("element", []int{many}, nil, func(a array, i []int) float64 { return a.at(256) }, gorgonia.S(256))
	sliced("steps", []int{many, few}, []int{(many + 2) / 3, few}, func(a array, i []int) float64 { return a.at(3*i[0], i[1]) }, gorgonia.S(0, many, 3))
	sliced("both", []int{many, 4}, []int{2, 2}, func(a array, i []int) float64 { return a.at(i[0]+256, i[1]+1) }, gorgonia.S(256, 258), gorgonia.S(1, 3))
	sliced("row and column", []int{many, 4}, nil, func(a array, i []int) float64 { return a.at(257, 2) }, gorgonia.S(257), gorgonia.S(2))
	sliced("inner", []int{2, many, 3}, []int{2, 2, 3}, func(a array, i []int) float64 { return a.at(i[0], i[1]+256, i[2]) }, nil, gorgonia.S(256, 258))
	turned := func(shape, to []int, axes ...int) {
		moved(fmt.Sprint("Transpose:", axes), shape, func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Transpose(x, slices.Clone(axes)...) }, to,
			func(a array, i []int) float64 {
				at := make([]int, len(i))
				for d, axis := range axes {
					at[axis] = i[d]
				}
				return a.at(at...)
			})
	}
	turned([]int{few, many}, []int{many, few}, 1, 0)
	turned([]int{2, many, 3}, []int{3, 2, many}, 2, 0, 1)
	turned([]int{2, many, 3, 2}, []int{2, 2, 3, many}, 0, 3, 2, 1)
	flat := func(width int) func(a array, i []int) float64 {
		return func(a array, i []int) float64 { return a.data[i[0]*width+i[1]] }
	}
	moved("Reshape", []int{few, many}, func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Reshape(x, tensor.Shape{many, few}) }, []int{many, few}, flat(few))
	moved("Ravel", []int{few, many}, gorgonia.Ravel, []int{few * many}, func(a array, i []int) float64 { return a.data[i[0]] })
	moved("At", []int{many, few}, func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.At(x, many-1, 1) }, nil,
		func(a array, i []int) float64 { return a.at(many-1, 1) })
	all[len(all)-1].flat = true
	for i, c := range []struct{ shape, to []int }{{[]int{many, 2}, []int{4, 2}}, {[]int{2, many}, []int{2, 4}}, {[]int{2, many, 3}, []int{2, 4, 3}}, {[]int{many}, []int{4}}} {
		axis := slices.Index(c.shape, many)
		chosen := []int{many - 1, 0, 257, 257}
		moved(fmt.Sprint("ByIndices:", i), c.shape, func(x *gorgonia.Node) (*gorgonia.Node, error) {
			index := gorgonia.NewVector(x.Graph(), tensor.Int, gorgonia.WithName("index"), gorgonia.WithShape(4), gorgonia.WithValue(tensor.New(tensor.WithBacking(slices.Clone(chosen)))))
			return gorgonia.ByIndices(x, index, axis)
		}, c.to, func(a array, i []int) float64 {
			at := slices.Clone(i)
			at[axis] = chosen[i[axis]]
			return a.at(at...)
		})
	}
	joined := func(name string, axis int, to []int, from func(v []array, i []int) float64, shapes ...[]int) {
		all = append(all, twin{"Concat:" + name, shapes, func(v nodes) (*gorgonia.Node, error) { return gorgonia.Concat(axis, v...) },
			func(v []array) array { return of(to, func(i []int) float64 { return from(v, i) }) }, false, false})
	}
	joined("columns", 1, []int{few, 512}, func(v []array, i []int) float64 { return v[i[1]/256].at(i[0], i[1]%256) }, []int{few, 256}, []int{few, 256})
	joined("rows", 0, []int{many + 3, few}, func(v []array, i []int) float64 {
		if i[0] < many {
			return v[0].at(i...)
		}
		return v[1].at(i[0]-many, i[1])
	}, []int{many, few}, []int{3, few})
	joined("vectors", 0, []int{3 * 256}, func(v []array, i []int) float64 { return v[i[0]/256].at(i[0] % 256) }, []int{256}, []int{256}, []int{256})
	joined("single rows", 0, []int{2, many}, func(v []array, i []int) float64 { return v[i[0]].at(0, i[1]) }, []int{1, many}, []int{1, many})
	all = append(all, twin{"Unconcat", [][]int{{few, 2 * many}}, func(v nodes) (*gorgonia.Node, error) {
		parts, err := gorgonia.Unconcat(v[0], 1, 2)
		if err != nil {
			return nil, err
		}
		return gorgonia.Sub(parts[0], parts[1])
	}, func(v []array) array {
		return of([]int{few, many}, func(i []int) float64 { return v[0].at(i[0], i[1]) - v[0].at(i[0], i[1]+many) })
	}, false, false})
	return all
}

// softmax returns the softmax of a along an axis, or its logarithm, computed
// by plain loops.
func (a array) softmax(axis int, log bool) array {
	largest := a.over([]int{axis}, math.Inf(-1), larger)
	without := func(i []int) []int { return slices.Delete(slices.Clone(i), axis, axis+1) }
	shifted := of(a.shape, func(i []int) float64 { return a.at(i...) - largest.at(without(i)...) })
	sum := shifted.over([]int{axis}, 0, func(s, x float64) float64 { return s + math.Exp(x) })
	return of(a.shape, func(i []int) float64 {
		if log {
			return shifted.at(i...) - math.Log(sum.at(without(i)...))
		}
		return math.Exp(shifted.at(i...)) / sum.at(without(i)...)
	})
}

func layers(few, many int) (all []twin) {
	for i, c := range []struct {
		shape []int
		axis  int
	}{{[]int{few, many}, 1}, {[]int{many, few}, 0}, {[]int{many, few}, 1}, {[]int{2, many, 3}, 1}, {[]int{1, 5}, 1}, {[]int{many}, 0}} {
		for name, f := range map[string]func(x *gorgonia.Node, axes ...int) (*gorgonia.Node, error){"SoftMax": gorgonia.SoftMax, "LogSoftMax": gorgonia.LogSoftMax} {
			all = append(all, twin{fmt.Sprint(name, ":", i), [][]int{c.shape}, func(v nodes) (*gorgonia.Node, error) {
				return then(v[0], func(x *gorgonia.Node) (*gorgonia.Node, error) { return f(x, c.axis) }, gorgonia.Cube)
			}, func(v []array) array {
				y := v[0].softmax(c.axis, name == "LogSoftMax")
				return of(y.shape, func(i []int) float64 { return math.Pow(y.at(i...), 3) })
			}, false, false})
		}
	}
	all = append(all, twin{"SoftMax:no axis", [][]int{{few, many}}, func(v nodes) (*gorgonia.Node, error) { return gorgonia.SoftMax(v[0]) },
		func(v []array) array { return v[0].softmax(1, false) }, false, false},
		twin{"Sparsemax", [][]int{{few, many}}, func(v nodes) (*gorgonia.Node, error) { return gorgonia.Sparsemax(v[0]) },
			func(v []array) array { return v[0].sparsemax() }, false, false},
		twin{"Upsample2D", [][]int{{1, 2, 3, many}}, func(v nodes) (*gorgonia.Node, error) { return gorgonia.Upsample2D(v[0], 2) },
			func(v []array) array {
				return of([]int{1, 2, 6, 2 * many}, func(i []int) float64 { return v[0].at(i[0], i[1], i[2]/2, i[3]/2) })
			}, false, false},
		twin{"GlobalAveragePool2D", [][]int{{2, 3, 3, many}}, func(v nodes) (*gorgonia.Node, error) { return gorgonia.GlobalAveragePool2D(v[0]) },
			func(v []array) array {
				sum := v[0].over([]int{2, 3}, 0, add)
				return of([]int{2, 3, 1, 1}, func(i []int) float64 { return sum.at(i[0], i[1]) / float64(3*many) })
			}, false, true})
	return all
}

// sparsemax returns, for each row, the nearest point of the probability
// simplex.
func (a array) sparsemax() array {
	out := of(a.shape, func([]int) float64 { return 0 })
	n := a.shape[1]
	for r := range a.shape[0] {
		row := a.data[r*n : (r+1)*n]
		sorted := slices.Clone(row)
		slices.Sort(sorted)
		slices.Reverse(sorted)
		var sum, threshold float64
		for k, x := range sorted {
			sum += x
			if 1+float64(k+1)*x > sum {
				threshold = (sum - 1) / float64(k+1)
			}
		}
		for i, x := range row {
			out.data[r*n+i] = math.Max(x-threshold, 0)
		}
	}
	return out
}
