package ops

import (
	"math"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func twoInputs(f func(a, b *gorgonia.Node) (*gorgonia.Node, error)) model {
	return func(in []*gorgonia.Node) (*gorgonia.Node, error) { return f(in[0], in[1]) }
}

// labelled returns random logits with the given spread, and labels for them in
// both forms.
func labelled(seed uint64, rows, classes int, spread float64) (logits, oneHot, index []float64) {
	logits = numbers(seed, []int{rows, classes})[0]
	oneHot, index = make([]float64, rows*classes), make([]float64, rows)
	for i := range rows {
		k := (i*5 + 1) % classes
		index[i], oneHot[i*classes+k] = float64(k), 1
	}
	for i := range logits {
		logits[i] *= spread
	}
	return logits, oneHot, index
}

var entropies = []struct {
	name    string
	divisor func(rows int) float64
	build   func(a, b *gorgonia.Node) (*gorgonia.Node, error)
}{
	{"mean", func(rows int) float64 { return float64(rows) }, CrossEntropy},
	{"sum", func(int) float64 { return 1 }, SumCrossEntropy},
}

// SmoothCrossEntropy must equal CrossEntropy with smoothed labels, for both
// forms of labels.
func TestSmoothCrossEntropy(t *testing.T) {
	const rows, classes, fraction = 5, 7, 0.1
	logits, oneHot, index := labelled(1, rows, classes, 2)
	smoothed := slices.Clone(oneHot)
	for i := range smoothed {
		smoothed[i] = oneHot[i]*(1-fraction) + fraction/classes
	}
	shape := []int{rows, classes}
	want := checkGradient(t, [][]int{shape, shape}, [][]float64{logits, smoothed}, 1, training, twoInputs(CrossEntropy))
	smooth := twoInputs(func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return SmoothCrossEntropy(a, b, fraction) })
	near(t, "one-hot", checkGradient(t, [][]int{shape, shape}, [][]float64{logits, oneHot}, 1, training, smooth), want, 1e-12)
	near(t, "classes", checkGradient(t, [][]int{shape, {rows}}, [][]float64{logits, index}, 1, training, smooth), want, 1e-12)
	for _, wrong := range []float64{-0.1, 1, math.NaN()} {
		if _, err := SmoothCrossEntropy(nil, nil, wrong); err == nil || !strings.Contains(err.Error(), "at least 0 and less than 1") {
			t.Errorf("a fraction of %v: %v", wrong, err)
		}
	}
}

func TestCrossEntropyEqualsItsFormula(t *testing.T) {
	for _, c := range entropies {
		for _, s := range [][2]int{{1, 1}, {1, 3}, {4, 1}, {7, 5}, {3, 10}} {
			logits, oneHot, index := labelled(1, s[0], s[1], 2)
			want := 0.0
			for i, k := range index {
				sum := 0.0
				for _, v := range logits[i*s[1] : (i+1)*s[1]] {
					sum += math.Exp(v)
				}
				want -= math.Log(math.Exp(logits[i*s[1]+int(k)]) / sum)
			}
			want /= c.divisor(s[0])
			shape := []int{s[0], s[1]}
			got := checkGradient(t, [][]int{shape, shape}, [][]float64{logits, oneHot}, 1, training, twoInputs(c.build))
			near(t, c.name+" one-hot", got, []float64{want}, 1e-12)
			got = checkGradient(t, [][]int{shape, {s[0]}}, [][]float64{logits, index}, 1, training, twoInputs(c.build))
			near(t, c.name+" classes", got, []float64{want}, 1e-12)
		}
	}
}

// Labels may be weights whose rows do not add up to 1.
func TestCrossEntropyOfWeights(t *testing.T) {
	logits, labels := numbers(5, []int{3, 4})[0], numbers(6, []int{3, 4})[0]
	for i := range labels {
		labels[i] = math.Abs(labels[i])
	}
	checkGradient(t, [][]int{{3, 4}, {3, 4}}, [][]float64{logits, labels}, 1, training, twoInputs(CrossEntropy))
}

func TestCrossEntropyOfHugeLogits(t *testing.T) {
	big := 1e30
	for _, c := range []struct {
		logits []float64
		want   float64
	}{
		{[]float64{big, big, -big}, math.Ln2},
		{[]float64{0, 3 * big, 0}, 3 * big},
		{[]float64{big, 0, 0}, 0},
		{[]float64{-big, -big, -big}, math.Log(3)},
		{[]float64{1000, -1000, math.Inf(-1)}, 0},
	} {
		for kind, labels := range map[string][]float64{"one-hot": {1, 0, 0}, "class": {0}} {
			shape := []int{1, 3}[:len(labels)/3+1]
			f := feed(t, [][]int{{1, 3}, shape}, [][]float64{c.logits, labels}, twoInputs(CrossEntropy))
			gradient, err := gorgonia.Grad(f.loss, f.in[0])
			must(t, err)
			f.want(gradient[0])
			f.run(t, training)
			near(t, kind, f.get(f.out), []float64{c.want}, 1e-12)
			for _, v := range f.get(gradient[0]) {
				if math.IsNaN(v) || math.Abs(v) > 2 {
					t.Errorf("%v: a gradient of %v", c.logits, v)
				}
			}
		}
	}
}

func TestCrossEntropyRejectsInvalidClassNumbers(t *testing.T) {
	for _, label := range []float64{-1, 3, 0.5, math.NaN(), math.Inf(1)} {
		f := feed(t, [][]int{{2, 3}, {2}}, [][]float64{make([]float64, 6), {1, label}}, twoInputs(CrossEntropy))
		err := gorgonia.NewTapeMachine(f.graph).RunAll()
		if err == nil || !strings.Contains(err.Error(), "row 1 has the label") || !strings.Contains(err.Error(), "from 0 to 2") {
			t.Errorf("label %v: %v", label, err)
		}
	}
}

func TestCrossEntropyAcceptsIntegerLabels(t *testing.T) {
	logits, _, _ := labelled(7, 2, 3, 1)
	var first float64
	for i, labels := range []any{[]float32{2, 0}, []int{2, 0}, []int32{2, 0}, []int64{2, 0}, []float64{2, 0}} {
		g := gorgonia.NewGraph()
		y := tensor.New(tensor.WithShape(2), tensor.WithBacking(labels))
		x := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{float32(logits[0]), 1, 2, 3, 4, 5}))
		loss, err := CrossEntropy(gorgonia.NodeFromAny(g, x, gorgonia.WithName("x")), gorgonia.NodeFromAny(g, y, gorgonia.WithName("y")))
		must(t, err)
		must(t, gorgonia.NewTapeMachine(g).RunAll())
		got := float64(loss.Value().Data().(float32))
		if i == 0 {
			first = got
		}
		if got != first || got == 0 {
			t.Errorf("labels of type %T: loss %v, want %v", labels, got, first)
		}
	}
}

func TestCrossEntropyRejectsWrongShapes(t *testing.T) {
	g := gorgonia.NewGraph()
	node := func(name string, dtype tensor.Dtype, s ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, dtype, len(s), gorgonia.WithShape(s...), gorgonia.WithName(name))
	}
	for _, c := range []struct {
		logits, labels *gorgonia.Node
		want           string
	}{
		{node("a", tensor.Float32, 2), node("b", tensor.Float32, 2), `the logits are "a" (2), want (batch, classes)`},
		{node("c", tensor.Float32, 2, 3), node("d", tensor.Float32, 3), `the logits are "c" (2, 3) float32, the labels "d" (3) float32`},
		{node("e", tensor.Float32, 2, 3), node("f", tensor.Float64, 2, 3), "want one float32 for each logit"},
		{node("g", tensor.Float32, 2, 3), node("h", tensor.Bool, 2), "bool"},
		{node("i", tensor.Int, 2, 3), node("j", tensor.Int, 2), "want float32 or float64"},
		{node("k", tensor.Float32, 2, 3), nil, "nil"},
	} {
		if _, err := CrossEntropy(c.logits, c.labels); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestAccuracy(t *testing.T) {
	logits := []float64{3, 1, 2, 0, 0, 1, 5, 5, 4, -1, -1, -1}
	for _, c := range []struct {
		labels []float64
		want   float64
	}{
		{[]float64{0, 2, 0, 0}, 1},
		{[]float64{0, 2, 1, 1}, 0.5}, // if logits are equal, the first one counts as the largest
		{[]float64{1, 1, 2, 2}, 0},
		{[]float64{1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1}, 0.5},
	} {
		shape := []int{4, 3}[:1+len(c.labels)/12]
		f := feed(t, [][]int{{4, 3}, shape}, [][]float64{logits, c.labels}, twoInputs(Accuracy))
		f.run(t, training)
		near(t, "accuracy", f.get(f.out), []float64{c.want}, 0)
	}
}

// A metric in the same graph must not change the gradient of the loss.
func TestAccuracyDoesNotChangeTheGradientOfTheLoss(t *testing.T) {
	logits, oneHot, _ := labelled(8, 4, 3, 1)
	checkGradient(t, [][]int{{4, 3}, {4, 3}}, [][]float64{logits, oneHot}, 1, training, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
		if _, err := Accuracy(in[0], in[1]); err != nil {
			return nil, err
		}
		return CrossEntropy(in[0], in[1])
	})
}

// The gradient must be bit-identical whether or not the loss stores its
// exponentials. If the loss stores them, the gradient must not compute them
// again.
func TestEntropyKeepsExponentials(t *testing.T) {
	const rows, classes = 3, 5
	g := gorgonia.NewGraph()
	logits := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(rows, classes), gorgonia.WithName("x"))
	labels := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(rows), gorgonia.WithName("y"))
	values := make([]float32, rows*classes)
	for i := range values {
		values[i] = float32(i%7) - 2.5
	}
	in := []gorgonia.Value{tensor.New(tensor.WithShape(rows, classes), tensor.WithBacking(values)),
		tensor.New(tensor.WithShape(rows), tensor.WithBacking([]int{4, 0, 2})), gorgonia.NewF32(0), gorgonia.NewF32(1.5)}
	gradient := func(kept bool) (loss float32, dx []float32) {
		e, err := newEntropy("cross entropy", logits, labels)
		if err != nil {
			t.Fatal(err)
		}
		e.divisor = rows
		if !kept {
			e.exp, e.sums = e.exp[:classes], nil
		}
		y, out := tensor.New(tensor.FromScalar(float32(0))), tensor.New(tensor.WithShape(rows, classes), tensor.Of(tensor.Float32))
		if err := entropyLoss[float32](e, y, in); err != nil {
			t.Fatal(err)
		}
		if kept {
			clear(e.exp[classes:]) // the exponentials of all rows but the first
		}
		if err := entropyGradient[float32](e, out, in); err != nil {
			t.Fatal(err)
		}
		return y.Float32s()[0], out.Float32s()
	}
	loss, again := gradient(false)
	same, kept := gradient(true)
	if loss != same || !slices.Equal(again[:classes], kept[:classes]) {
		t.Errorf("loss %v and gradient %v, kept %v and %v", loss, again[:classes], same, kept[:classes])
	}
	if kept[classes+1] != 0 {
		t.Error("the exponentials of the second row were computed again")
	}
	if large, err := newEntropy("cross entropy", gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(2, mostKept), gorgonia.WithName("z")),
		gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(2), gorgonia.WithName("w"))); err != nil || large.kept() || len(large.exp) != mostKept {
		t.Errorf("%d numbers are kept, %v", len(large.exp), err)
	}
}
