package ops

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// lstmModel returns a model of an LSTM whose inputs are in the order of LSTM's
// fields. It joins all outputs in one vector.
func lstmModel(steps int, projected, started bool) model {
	return func(in []*gorgonia.Node) (*gorgonia.Node, error) {
		l := LSTM{X: in[0], Input: in[1], State: in[2], Bias: in[3]}
		in = in[4:]
		if projected {
			l.Projection, in = in[0], in[1:]
		}
		if started {
			l.First, l.FirstCell = in[0], in[1]
		}
		q, err := l.Over(steps)
		if err != nil {
			return nil, err
		}
		return joined(q)
	}
}

func joined(q Sequence) (*gorgonia.Node, error) {
	var flat gorgonia.Nodes
	for _, n := range []*gorgonia.Node{q.Out, q.Last, q.Cell} {
		if n == nil {
			continue
		}
		all := memory.Elements(n.Shape())
		whole := parts{outer: 1, inner: 1, all: all, size: all}
		f, err := whole.operation("flat", n.Dtype(), tensor.Shape{all}).apply(n)
		if err != nil {
			return nil, err
		}
		flat = append(flat, f)
	}
	return Concat(0, flat...)
}

// lstmShapes returns the shapes of the inputs of lstmModel.
func lstmShapes(batch, steps, in, units, width int, started bool) [][]int {
	shapes := [][]int{{batch * steps, in}, {in, 4 * units}, {width, 4 * units}, {4 * units}}
	if width != units {
		shapes = append(shapes, []int{units, width})
	}
	if started {
		shapes = append(shapes, []int{batch, width}, []int{batch, units})
	}
	return shapes
}

// lstmTwin computes an LSTM with simple loops, as a reference.
func lstmTwin(batch, steps, in, units, width int, started bool, v [][]float64) (all []float64) {
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	var last, cells []float64
	for i := range batch {
		h, c := make([]float64, width), make([]float64, units)
		if started {
			copy(h, v[len(v)-2][i*width:])
			copy(c, v[len(v)-1][i*units:])
		}
		for t := range steps {
			hidden, z := make([]float64, units), slices.Clone(v[3])
			for g := range z {
				for k := range in {
					z[g] += v[0][(i*steps+t)*in+k] * v[1][k*4*units+g]
				}
				for k := range width {
					z[g] += h[k] * v[2][k*4*units+g]
				}
			}
			for u := range units {
				c[u] = sigmoid(z[units+u])*c[u] + sigmoid(z[u])*math.Tanh(z[2*units+u])
				hidden[u] = sigmoid(z[3*units+u]) * math.Tanh(c[u])
			}
			if h = hidden; width != units {
				h = make([]float64, width)
				for k := range h {
					for u := range units {
						h[k] += hidden[u] * v[4][u*width+k]
					}
				}
			}
			all = append(all, h...)
		}
		last, cells = append(last, h...), append(cells, c...)
	}
	return slices.Concat(all, last, cells)
}

func TestLSTM(t *testing.T) {
	for _, s := range [][5]int{{1, 1, 1, 1, 1}, {2, 3, 2, 3, 3}, {3, 4, 2, 3, 2}, {1, 5, 3, 2, 4}, {4, 1, 2, 2, 1}} {
		for _, started := range []bool{false, true} {
			shapes := lstmShapes(s[0], s[1], s[2], s[3], s[4], started)
			values := numbers(11, shapes...)
			want := lstmTwin(s[0], s[1], s[2], s[3], s[4], started, values)
			got := checkGradient(t, shapes, values, len(shapes), training, lstmModel(s[1], s[3] != s[4], started))
			near(t, fmt.Sprint(s, started), got, want, 1e-12)
		}
	}
}

// Forget must have the same effect as adding it to the bias.
func TestLSTMForgetEqualsABias(t *testing.T) {
	shapes := lstmShapes(2, 3, 2, 3, 3, false)
	values := numbers(19, shapes...)
	want := slices.Clone(values[3])
	for i := 3; i < 6; i++ {
		want[i] += 1.5
	}
	got := checkGradient(t, shapes, values, 4, training, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
		q, err := LSTM{X: in[0], Input: in[1], State: in[2], Bias: in[3], Forget: 1.5}.Over(3)
		if err != nil {
			return nil, err
		}
		return joined(q)
	})
	values[3] = want
	near(t, "lstm", got, lstmTwin(2, 3, 2, 3, 3, false, values), 1e-12)
}

// A sequence in two halves, the second starting from the first's final state,
// must give the same outputs as the whole sequence.
func TestLSTMResumesFromLastState(t *testing.T) {
	const batch, steps, in, units, width = 2, 4, 3, 3, 2
	shapes := lstmShapes(batch, steps, in, units, width, true)
	v := numbers(12, shapes...)
	whole := lstmTwin(batch, steps, in, units, width, true, v)
	half := func(at int, first, cell []float64) []float64 {
		x := slices.Concat(v[0][at*in:(at+2)*in], v[0][(steps+at)*in:(steps+at+2)*in])
		shapes := lstmShapes(batch, 2, in, units, width, true)
		f := feed(t, shapes, [][]float64{x, v[1], v[2], v[3], v[4], first, cell}, lstmModel(2, true, true))
		f.run(t, training)
		return f.get(f.out)
	}
	first := half(0, v[5], v[6])
	state := first[batch*2*width:]
	second := half(2, state[:batch*width], state[batch*width:])
	near(t, "the end", second[batch*2*width:], whole[batch*steps*width:], 1e-12)
}

func TestAttention(t *testing.T) {
	for _, s := range [][4]int{{1, 1, 1, 1}, {2, 3, 4, 2}, {3, 2, 5, 3}} {
		batch, asked, kept, width := s[0], s[1], s[2], s[3]
		shapes := [][]int{{batch * asked, width}, {batch * kept, width}, {batch, kept}}
		values := numbers(13, shapes...)
		for i := range values[2] {
			values[2][i] = float64(1 - i%kept/max(kept-i/kept, 1)) // each sequence is one row shorter than the previous one
		}
		got := checkGradient(t, shapes, values, 2, training, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return Attention(in[0], in[1], in[2])
		})
		near(t, fmt.Sprint(s), got, attentionTwin(s, values), 1e-12)
	}
}

func attentionTwin(s [4]int, v [][]float64) []float64 {
	batch, asked, kept, width := s[0], s[1], s[2], s[3]
	out := make([]float64, batch*asked*width)
	for i := range batch * asked {
		weights, sum := make([]float64, kept), 0.0
		for j := range kept {
			score := 0.0
			for k := range width {
				score += v[0][i*width+k] * v[1][(i/asked*kept+j)*width+k]
			}
			weights[j] = v[2][i/asked*kept+j] * math.Exp(score/math.Sqrt(float64(width)))
			sum += weights[j]
		}
		for j, w := range weights {
			for k := range width {
				out[i*width+k] += w / sum * v[1][(i/asked*kept+j)*width+k]
			}
		}
	}
	return out
}

func TestAttentionRejectsAnEmptyMemory(t *testing.T) {
	shapes := [][]int{{2, 2}, {4, 2}, {2, 2}}
	values := numbers(14, shapes...)
	copy(values[2], []float64{1, 1, 0, 0})
	f := feed(t, shapes, values, func(in []*gorgonia.Node) (*gorgonia.Node, error) { return Attention(in[0], in[1], in[2]) })
	if err := gorgonia.NewTapeMachine(f.graph).RunAll(); err == nil || !strings.Contains(err.Error(), "sequence 1: no row of the memory counts") {
		t.Errorf("got %v", err)
	}
}

func TestSliceAndConcat(t *testing.T) {
	values := numbers(15, []int{2, 5, 3}, []int{2, 2, 3})
	got := checkGradient(t, [][]int{{2, 5, 3}, {2, 2, 3}}, values, 2, training, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
		x, err := Slice(in[0], 1, 1, 4)
		if err != nil {
			return nil, err
		}
		return Concat(1, in[1], x)
	})
	want := slices.Concat(values[1][:6], values[0][3:12], values[1][6:], values[0][18:27])
	near(t, "joined", got, want, 0)
}

// Two slices whose bounds differ by 256 must be different nodes; Gorgonia's
// own slices would be merged.
func TestSlices256ApartStayDistinct(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(600), gorgonia.WithName("x"))
	a, err := Slice(x, 0, 0, 256)
	must(t, err)
	b, err := Slice(x, 0, 256, 512)
	must(t, err)
	if a == b {
		t.Error("two slices are one vertex")
	}
}

func TestRows(t *testing.T) {
	table := numbers(16, []int{4, 2})[0]
	index := []float64{3, 0, 3, 1, 3}
	got := checkGradient(t, [][]int{{4, 2}, {5}}, [][]float64{table, index}, 1, training, twoInputs(Rows))
	near(t, "rows", got, slices.Concat(table[6:], table[:2], table[6:], table[2:4], table[6:]), 0)
	for _, wrong := range []float64{-1, 4, 0.5, math.NaN()} {
		f := feed(t, [][]int{{4, 2}, {1}}, [][]float64{table, {wrong}}, twoInputs(Rows))
		if err := gorgonia.NewTapeMachine(f.graph).RunAll(); err == nil || !strings.Contains(err.Error(), "want a row from 0 to 3") {
			t.Errorf("row %v: %v", wrong, err)
		}
	}
}

func TestSequenceErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	node := func(name string, s ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(s), gorgonia.WithShape(s...), gorgonia.WithName(name))
	}
	x, w, r, b, p := node("x", 6, 2), node("w", 2, 12), node("r", 3, 12), node("b", 12), node("p", 3, 2)
	over := func(l LSTM, steps int) error { _, err := l.Over(steps); return err }
	of := func(_ *gorgonia.Node, err error) error { return err }
	for _, c := range []struct {
		err  error
		want string
	}{
		{over(LSTM{X: x, Input: w, State: r, Bias: b}, 4), `X is "x" (6, 2)`},
		{over(LSTM{X: x, Input: w, State: r, Bias: b}, 0), `lstm of 0 steps`},
		{over(LSTM{X: x, Input: r, State: r, Bias: b}, 3), `Input is "r" (3, 12), want [2 12]`},
		{over(LSTM{X: x, Input: w, State: w, Bias: b}, 3), `State is "w" (2, 12), want (3, 12) without a projection`},
		{over(LSTM{X: x, Input: w, State: r, Bias: b, Projection: p}, 3), `Projection is "p" (3, 2), want [3 3]`},
		{over(LSTM{X: x, Input: w, State: r, Bias: b, First: p}, 3), "give both First and FirstCell, or neither"},
		{over(LSTM{X: x, Input: w, State: r}, 3), "nil"},
		{of(Attention(x, x, x)), "attention: the query is"},
		{of(Slice(x, 1, 1, 3)), `slice 1:3 of axis 1: x is "x" (6, 2)`},
		{of(Slice(x, 2, 0, 1)), "axis 2"},
		{of(Concat(0)), "nothing is given"},
		{of(Concat(1, x, w)), `"x" (6, 2) and "w" (2, 12) differ in another axis`},
		{of(Rows(x, w)), "want (rows, width) and (n) whole numbers"},
		{of(Rows(x, nil)), "nil"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%v, want %q", c.err, c.want)
		}
	}
}

func init() {
	for name, c := range map[string]struct {
		shapes   [][]int
		gradient int
		build    model
	}{
		"lstm":           {lstmShapes(2, 3, 2, 3, 3, false), 4, lstmModel(3, false, false)},
		"lstm projected": {lstmShapes(2, 3, 2, 3, 2, true), 7, lstmModel(3, true, true)},
		"attention": {[][]int{{4, 3}, {6, 3}, {2, 3}}, 2, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return Attention(in[0], in[1], in[2])
		}},
		"slice": {[][]int{{3, 5, 2}}, 1, oneInput(func(x *gorgonia.Node) (*gorgonia.Node, error) { return Slice(x, 1, 2, 4) })},
		"concat": {[][]int{{3, 5}, {3, 2}}, 2, twoInputs(func(a, b *gorgonia.Node) (*gorgonia.Node, error) {
			both, err := Concat(1, a, b)
			if err != nil {
				return nil, err
			}
			return Tanh(both)
		})},
		"rows": {[][]int{{4, 2}, {5}}, 1, twoInputs(func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return Rows(a, classes(b, 4)) })},
		"sampled": {[][]int{{4, 3}, {4, 4}, {5, 4}, {4}, {5}}, 3, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			loss, _, err := SampledCrossEntropy(in[0], Candidates{LabelRows: in[1], SampleRows: in[2], LabelLog: in[3], SampleLog: in[4],
				Label: classes(in[3], 7), Sample: classes(in[4], 7)})
			return loss, err
		}},
	} {
		everything[name] = c
	}
}

// classes makes some class of each of x.
func classes(x *gorgonia.Node, n int) *gorgonia.Node {
	o := &op{what: "classes", out: operand{dtype: x.Dtype(), shape: x.Shape()}, fixed: 1}
	o.run = choose(x.Dtype(), someClass[float32], someClass[float64], n)
	y, err := o.apply(x)
	if err != nil {
		panic(err)
	}
	return y
}

func someClass[T float](n int, out []T, in [][]T) {
	for i, v := range in[0] {
		out[i] = T(int(math.Abs(float64(v))*5) % n)
	}
}
