package ops

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func gruModel(steps int) model {
	return func(in []*gorgonia.Node) (*gorgonia.Node, error) {
		l := GRU{X: in[0], Input: in[1], State: in[2], Bias: in[3]}
		if len(in) > 4 {
			l.First = in[4]
		}
		q, err := l.Over(steps)
		if err != nil {
			return nil, err
		}
		return joined(q)
	}
}

func gruShapes(batch, steps, in, units int, started bool) [][]int {
	shapes := [][]int{{batch * steps, in}, {in, 3 * units}, {units, 3 * units}, {3 * units}}
	if started {
		shapes = append(shapes, []int{batch, units})
	}
	return shapes
}

// gruTwin computes a GRU with simple loops, as a reference.
func gruTwin(batch, steps, in, units int, v [][]float64) (all []float64) {
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	var last []float64
	for i := range batch {
		h := make([]float64, units)
		if len(v) > 4 {
			copy(h, v[4][i*units:])
		}
		for t := range steps {
			x, p := slices.Clone(v[3]), make([]float64, 3*units)
			for g := range x {
				for k := range in {
					x[g] += v[0][(i*steps+t)*in+k] * v[1][k*3*units+g]
				}
				for k := range units {
					p[g] += h[k] * v[2][k*3*units+g]
				}
			}
			next := make([]float64, units)
			for k := range next {
				r, u := sigmoid(x[k]+p[k]), sigmoid(x[units+k]+p[units+k])
				next[k] = (1-u)*math.Tanh(x[2*units+k]+r*p[2*units+k]) + u*h[k]
			}
			h = next
			all = append(all, h...)
		}
		last = append(last, h...)
	}
	return append(all, last...)
}

func TestGRU(t *testing.T) {
	for _, s := range [][4]int{{1, 1, 1, 1}, {2, 3, 2, 3}, {3, 4, 3, 2}, {4, 1, 2, 2}} {
		for _, started := range []bool{false, true} {
			shapes := gruShapes(s[0], s[1], s[2], s[3], started)
			values := numbers(20, shapes...)
			want := gruTwin(s[0], s[1], s[2], s[3], values)
			got := checkGradient(t, shapes, values, len(shapes), training, gruModel(s[1]))
			near(t, fmt.Sprint(s, started), got, want, 1e-12)
		}
	}
}

func TestGRUErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	node := func(name string, s ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(s), gorgonia.WithShape(s...), gorgonia.WithName(name))
	}
	x, w, r, b := node("x", 6, 2), node("w", 2, 9), node("r", 3, 9), node("b", 9)
	for want, l := range map[string]GRU{
		`X is "x" (6, 2) and State "w" (2, 9)`: {X: x, Input: w, State: w, Bias: b},
		`Input is "r" (3, 9), want [2 9]`:      {X: x, Input: r, State: r, Bias: b},
		`First is "x" (6, 2), want [2 3]`:      {X: x, Input: w, State: r, Bias: b, First: x},
		"nil":                                  {X: x, Input: w, State: r},
	} {
		if _, err := l.Over(3); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func init() {
	for name, started := range map[string]bool{"gru": false, "gru started": true} {
		shapes := gruShapes(2, 3, 2, 3, started)
		everything[name] = struct {
			shapes   [][]int
			gradient int
			build    model
		}{shapes, len(shapes), gruModel(3)}
	}
}

// Every size and setting must be part of the hash, because Gorgonia merges
// nodes with equal hashes.
func TestSequencesHashesDiffer(t *testing.T) {
	g := gorgonia.NewGraph()
	node := func(name string, s ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(s), gorgonia.WithShape(s...), gorgonia.WithName(name))
	}
	x, w, r, b := node("x", 6, 2), node("w", 2, 12), node("r", 3, 12), node("b", 12)
	v, p, c := node("v", 2, 9), node("p", 3, 9), node("c", 9)
	last := func(q Sequence, err error) *gorgonia.Node { t.Helper(); must(t, err); return q.Last }
	node1 := func(n *gorgonia.Node, err error) *gorgonia.Node { t.Helper(); must(t, err); return n }
	seen := map[uint32]*gorgonia.Node{}
	for _, n := range []*gorgonia.Node{
		last(LSTM{X: x, Input: w, State: r, Bias: b}.Over(2)), last(LSTM{X: x, Input: w, State: r, Bias: b}.Over(3)),
		last(LSTM{X: x, Input: w, State: r, Bias: b, Forget: 1}.Over(3)), last(LSTM{X: x, Input: w, State: r, Bias: b, Forget: 2}.Over(3)),
		last(GRU{X: x, Input: v, State: p, Bias: c}.Over(2)), last(GRU{X: x, Input: v, State: p, Bias: c}.Over(3)),
		node1(Slice(x, 0, 1, 3)), node1(Slice(x, 0, 2, 4)), node1(Slice(x, 1, 0, 1)), node1(Slice(x, 1, 1, 2)),
		node1(Concat(0, x, x)), node1(Concat(1, x, x)), node1(Rows(x, b)), node1(Attention(x, x, node("m", 2, 3))), node1(Attention(x, x, node("n", 3, 2))),
	} {
		if other := seen[n.Op().Hashcode()]; other != nil {
			t.Errorf("%v has the hash of %v", n.Op(), other.Op())
		}
		seen[n.Op().Hashcode()] = n
	}
}
