package growth_test

import (
	"math"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/growth"
	"github.com/plx-run/plx/trainer/nn/ops"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type node = *gorgonia.Node

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// leaves are the inputs of the loss functions in this file: x (batch, 3), y
// (batch), labels of two classes (batch, 2), a weight w (3, 2).
type leaves struct{ x, y, labels, w node }

const width = 3

func newLeaves(batch int) leaves {
	g := gorgonia.NewGraph()
	matrix := func(name string, rows, columns int) node {
		return gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName(name), gorgonia.WithShape(rows, columns))
	}
	return leaves{x: matrix("x", batch, width), labels: matrix("labels", batch, 2), w: matrix("w", width, 2),
		y: gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("y"), gorgonia.WithShape(batch))}
}

func (l leaves) all() gorgonia.Nodes { return gorgonia.Nodes{l.x, l.y, l.labels, l.w} }

func number(v float64) node            { return gorgonia.NewConstant(v) }
func sum(n node, axes ...int) node     { return must(gorgonia.Sum(n, axes...)) }
func mean(n node, axes ...int) node    { return must(gorgonia.Mean(n, axes...)) }
func square(n node) node               { return must(gorgonia.Square(n)) }
func plus(a, b node) node              { return must(gorgonia.Add(a, b)) }
func times(a, b node) node             { return must(gorgonia.HadamardProd(a, b)) }
func over(a, b node) node              { return must(gorgonia.HadamardDiv(a, b)) }
func product(a, b node) node           { return must(gorgonia.Mul(a, b)) }
func turned(n node) node               { return must(gorgonia.Transpose(n)) }
func shaped(n node, shape ...int) node { return must(gorgonia.Reshape(n, shape)) }
func (l leaves) out() node             { return must(ops.Linear(l.x, l.w, nil)) }
func (l leaves) size(axis int) node    { return must(gorgonia.SizeOf(axis, l.x)) }
func (l leaves) rows() int             { return l.x.Shape()[0] }
func (l leaves) per(n node) node       { return over(n, l.size(0)) }

// losses maps names to scalar functions of a batch, with the expected degree:
// how they grow with the number of rows.
var losses = map[string]struct {
	degree int
	f      func(l leaves) node
}{
	"mean":                  {0, func(l leaves) node { return mean(square(l.x)) }},
	"mean of sums":          {0, func(l leaves) node { return mean(sum(square(l.x), 1)) }},
	"sum of means":          {0, func(l leaves) node { return sum(mean(square(l.x), 0)) }},
	"mean of sums of rows":  {1, func(l leaves) node { return mean(sum(square(l.x), 0)) }},
	"sum":                   {1, func(l leaves) node { return sum(square(l.x)) }},
	"half a sum":            {1, func(l leaves) node { return times(number(0.5), sum(square(l.x))) }},
	"half a mean":           {0, func(l leaves) node { return times(number(0.5), mean(square(l.x))) }},
	"negative sum":          {1, func(l leaves) node { return must(gorgonia.Neg(sum(square(l.x)))) }},
	"sum by rows":           {0, func(l leaves) node { return l.per(sum(square(l.x))) }},
	"mean and penalty":      {0, func(l leaves) node { return plus(mean(square(l.x)), sum(square(l.w))) }},
	"penalty":               {0, func(l leaves) node { return sum(square(l.w)) }},
	"two sums":              {1, func(l leaves) node { return plus(sum(square(l.x)), sum(square(l.y))) }},
	"masked mean":           {0, func(l leaves) node { return over(sum(times(l.y, l.y)), sum(l.y)) }},
	"square of a sum":       {2, func(l leaves) node { return square(sum(l.y)) }},
	"root of a squared sum": {1, func(l leaves) node { return must(gorgonia.Sqrt(square(sum(l.y)))) }},
	"root of a mean":        {0, func(l leaves) node { return must(gorgonia.Sqrt(mean(square(l.y)))) }},
	"inner product":         {1, func(l leaves) node { return product(l.y, l.y) }},
	"rows by rows":          {2, func(l leaves) node { return sum(product(l.x, turned(l.x))) }},
	"mean of rows by rows":  {0, func(l leaves) node { return mean(product(l.x, turned(l.x))) }},
	"columns by columns":    {1, func(l leaves) node { return sum(product(turned(l.x), l.x)) }},
	"matrix by vector":      {1, func(l leaves) node { return mean(product(turned(l.x), l.y)) }},
	"one of the columns":    {1, func(l leaves) node { return sum(must(gorgonia.Slice(l.x, nil, gorgonia.S(1)))) }},
	"one of the rows":       {0, func(l leaves) node { return sum(must(gorgonia.Slice(l.x, gorgonia.S(1)))) }},
	"turned":                {0, func(l leaves) node { return sum(mean(turned(l.x), 1)) }},
	"turned the wrong way":  {1, func(l leaves) node { return sum(mean(turned(l.x), 0)) }},
	"flat":                  {0, func(l leaves) node { return mean(shaped(l.x, l.rows()*width)) }},
	"an axis more":          {1, func(l leaves) node { return mean(sum(shaped(l.x, 1, l.rows(), width), 1)) }},
	"largest":               {1, func(l leaves) node { return sum(must(gorgonia.Max(l.x, 1))) }},
	"largest row":           {0, func(l leaves) node { return sum(must(gorgonia.Max(l.x, 0))) }},
	"softmax":               {1, func(l leaves) node { return sum(must(gorgonia.SoftMax(l.x, 1))) }},
	"weights of rows":       {0, func(l leaves) node { return sum(times(must(gorgonia.SoftMax(l.x, 0)), l.x)) }},
	"broadcast": {1, func(l leaves) node {
		return sum(must(gorgonia.BroadcastAdd(l.x, shaped(sum(l.w, 1), 1, width), nil, []byte{0})))
	}},
	"repeated weight": {1, func(l leaves) node {
		return sum(must(gorgonia.BroadcastAdd(shaped(sum(l.w, 1), 1, width), times(l.x, number(0)), []byte{0}, nil)))
	}},
	"joined":                   {0, func(l leaves) node { return mean(must(gorgonia.Concat(1, l.x, l.labels))) }},
	"tensordot":                {1, func(l leaves) node { return mean(must(gorgonia.Tensordot([]int{0}, []int{0}, l.x, l.labels))) }},
	"cross entropy":            {0, func(l leaves) node { return must(ops.CrossEntropy(l.out(), l.labels)) }},
	"sum of cross entropy":     {1, func(l leaves) node { return must(ops.SumCrossEntropy(l.out(), l.labels)) }},
	"negative mean, then half": {0, func(l leaves) node { return times(number(0.5), must(gorgonia.Neg(mean(must(ops.Relu(l.out())))))) }},
	"plx's operations":         {1, func(l leaves) node { return sum(must(ops.Slice(must(ops.Softmax(must(ops.Tanh(l.out())))), 1, 0, 1))) }},
	"plx's largest row":        {0, func(l leaves) node { return sum(must(ops.Max(l.x, 0))) }},
}

// value computes the loss f of a batch that repeats the same 4 rows.
func value(t *testing.T, f func(leaves) node, batch int) float64 {
	t.Helper()
	l := newLeaves(batch)
	y := f(l)
	p, err := executor.Compile(y.Graph(), executor.Plan{Inputs: l.all(), Outputs: gorgonia.Nodes{y}})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range l.all() {
		data := p.Input(i).Data().([]float64)
		period := len(data)
		if n != l.w {
			period = len(data) / batch * 4
		}
		for j := range data {
			data[j] = 0.3 + math.Abs(math.Sin(float64(i+1)*float64(1+j%period)))
		}
	}
	if _, err := p.Run(operation.Call{Train: true, VirtualWorkers: 1}, nil, nil); err != nil {
		t.Fatal(err)
	}
	switch v := p.Output(0).Data().(type) {
	case float64:
		return v
	case []float64:
		return v[0]
	}
	t.Fatalf("the loss is a %T", p.Output(0))
	return 0
}

// The degree agrees with the measured loss of a batch in which each row occurs
// twice.
func TestDegreeMatchesABatchWithDoubledRows(t *testing.T) {
	for name, c := range losses {
		t.Run(name, func(t *testing.T) {
			l := newLeaves(4)
			got, err := growth.Of(c.f(l), gorgonia.Nodes{l.x, l.y, l.labels}, 4)
			if err != nil || got.Why != "" || got.Degree != c.degree {
				t.Errorf("got degree %d, %q, %v, want %d", got.Degree, got.Why, err, c.degree)
			}
			once, twice := value(t, c.f, 4), value(t, c.f, 8)
			if want := once * math.Pow(2, float64(c.degree)); math.Abs(twice-want) > 1e-9*math.Abs(want) {
				t.Errorf("the loss is %v, of each row twice %v, want %v", once, twice, want)
			}
		})
	}
}

// If the graph does not determine the degree, it is unknown, and Why names the
// operation.
func TestUnknownDegreeNamesTheOperation(t *testing.T) {
	for want, f := range map[string]func(l leaves) node{
		"+ of a sum":            func(l leaves) node { return plus(sum(square(l.x)), sum(square(l.w))) },
		"- of a sum":            func(l leaves) node { return must(gorgonia.Sub(sum(square(l.x)), number(1))) },
		"exp of a sum":          func(l leaves) node { return must(gorgonia.Exp(sum(l.y))) },
		"sqrt of a sum":         func(l leaves) node { return must(gorgonia.Sqrt(sum(l.y))) },
		"^ of a sum":            func(l leaves) node { return must(gorgonia.Pow(sum(l.y), number(3))) },
		"linear of rows":        func(l leaves) node { return mean(must(ops.Linear(turned(l.x), l.labels, nil))) },
		"Reshape(4, 3) of":      func(l leaves) node { return mean(shaped(turned(l.x), l.rows(), width)) },
		"log softmax":           func(l leaves) node { return mean(must(ops.LogSoftmax(l.y))) },
		"{0, true}() along the": func(l leaves) node { return mean(must(gorgonia.LogSoftMax(l.x, 0))) },
		"MinBet":                func(l leaves) node { return must(gorgonia.MinBetween(sum(l.y), mean(l.y))) },
		"tanh of rows that are": func(l leaves) node { return mean(must(ops.Tanh(turned(l.x)))) },
	} {
		l := newLeaves(4)
		got, err := growth.Of(f(l), gorgonia.Nodes{l.x, l.y, l.labels}, 4)
		if err != nil || !strings.Contains(got.Why, want) {
			t.Errorf("got %q of degree %d, %v, want %q", got.Why, got.Degree, err, want)
		}
	}
}

// A convolution keeps the axis of the rows, even for a batch of one row.
func TestConvolutionKeepsTheRowAxis(t *testing.T) {
	for _, batch := range []int{1, 2} {
		g := gorgonia.NewGraph()
		images := gorgonia.NewTensor(g, tensor.Float64, 4, gorgonia.WithName("x"), gorgonia.WithShape(batch, 2, 6, 6))
		filters := gorgonia.NewTensor(g, tensor.Float64, 4, gorgonia.WithName("w"), gorgonia.WithShape(3, 2, 3, 3))
		y := must(gorgonia.Conv2d(images, filters, tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
		y, _, _, _, err := gorgonia.BatchNorm(y, filled(g, "scale"), filled(g, "bias"), 0.1, 1e-5)
		if err != nil {
			t.Fatal(err)
		}
		y = must(gorgonia.MaxPool2D(y, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
		y = shaped(y, batch, 27)
		for n, want := range map[node]bool{mean(y): true, mean(sum(y, 1)): true, mean(sum(y, 0)): false, sum(y): false} {
			got, err := growth.Of(n, gorgonia.Nodes{images}, batch)
			if err != nil || got.Why != "" || (got.Degree == 0) != want {
				t.Errorf("batch %d, %v: %+v, %v", batch, n, got, err)
			}
		}
	}
}

func filled(g *gorgonia.ExprGraph, name string) node {
	return gorgonia.NewTensor(g, tensor.Float64, 4, gorgonia.WithName(name), gorgonia.WithShape(1, 3, 1, 1), gorgonia.WithInit(gorgonia.Ones()))
}

// Embedding rows that are looked up and concatenated are the features of a
// row, even for a batch of one row.
func TestLookedUpRowsAreFeatures(t *testing.T) {
	for _, batch := range []int{1, 4} {
		g := gorgonia.NewGraph()
		found := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("found"), gorgonia.WithShape(batch*6, 5))
		w := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("w"), gorgonia.WithShape(30, 2))
		out := product(shaped(found, batch, 30), w)
		for n, want := range map[node]int{mean(out): 0, sum(out): 1} {
			if got, err := growth.Of(n, gorgonia.Nodes{found}, batch); err != nil || got.Degree != want || got.Why != "" {
				t.Errorf("batch %d: got %+v, %v, want %d", batch, got, err, want)
			}
		}
	}
}

// A random tensor of the batch's shape has rows, like an input.
func TestRandomTensorHasTheRowsOfTheBatch(t *testing.T) {
	noise := must(ops.Gaussian(gorgonia.NewGraph(), tensor.Float64, 0, 1, "noise", 4, 3))
	for n, want := range map[node]int{mean(noise): 0, sum(noise): 1} {
		if got, err := growth.Of(n, nil, 4); err != nil || got.Degree != want || got.Why != "" {
			t.Errorf("got %+v, %v, want %d", got, err, want)
		}
	}
}
