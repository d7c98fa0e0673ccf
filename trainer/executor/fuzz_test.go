package executor

import (
	"fmt"
	"math"
	"testing"

	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// grower grows a random graph, one operation for every two or three bytes of
// its recipe.
type grower struct {
	recipe []byte
	pool   nodes // operations added so far: matrices of a few shapes, and vectors
}

// next returns the next byte of the recipe as a number below n, or 0 at the
// recipe's end.
func (r *grower) next(n int) int {
	if len(r.recipe) == 0 {
		return 0
	}
	b := r.recipe[0]
	r.recipe = r.recipe[1:]
	return int(b) % n
}

func (r *grower) pick() *gorgonia.Node { return r.pool[r.next(len(r.pool))] }

// partner returns a node of the same shape as n, which may be n itself.
func (r *grower) partner(n *gorgonia.Node) *gorgonia.Node {
	from := r.next(len(r.pool))
	for i := range r.pool {
		if m := r.pool[(from+i)%len(r.pool)]; fmt.Sprint(m.Shape()) == fmt.Sprint(n.Shape()) {
			return m
		}
	}
	return n
}

// tame lists smooth functions whose results do not grow, so that finite
// differences are accurate.
var tame = []func(*gorgonia.Node) (*gorgonia.Node, error){
	gorgonia.Tanh, gorgonia.Sigmoid, gorgonia.Sin, gorgonia.Cos, gorgonia.Neg, gorgonia.Softplus,
	func(n *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.Exp(must(gorgonia.Neg(must(gorgonia.Square(n)))))
	},
}

var pairs = []func(a, b *gorgonia.Node) (*gorgonia.Node, error){
	gorgonia.Add, gorgonia.Sub, gorgonia.HadamardProd,
	func(a, b *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.HadamardDiv(a, must(gorgonia.Exp(must(gorgonia.Sin(b)))))
	},
}

// grow adds one operation to the graph. It adds none if the shapes do not
// allow the operation.
func (r *grower) grow() {
	a := r.pick()
	matrix := a.Dims() == 2
	var n *gorgonia.Node
	switch op := r.next(13); {
	case op == 0 || a.IsScalar():
		n = must(tame[r.next(len(tame))](a))
	case op <= 3:
		n = must(pairs[r.next(len(pairs))](a, r.partner(a)))
	case op == 4 && matrix:
		n = must(gorgonia.Transpose(a))
	case op == 5 && matrix:
		n = r.product(a)
	case op == 6 && matrix:
		n = must(gorgonia.Sum(a, r.next(2)))
	case op == 7 && matrix:
		n = must(gorgonia.Mean(a, r.next(2)))
	case op == 8 && matrix && a.Shape()[0] < 12:
		n = must(gorgonia.Concat(r.next(2), a, r.partner(a)))
	case op == 9 && matrix:
		rows := a.Shape()[0]
		from := r.next(rows)
		n = must(gorgonia.Slice(a, gorgonia.S(from, from+1+r.next(rows-from))))
	case op == 10 && matrix:
		n = must(gorgonia.Tanh(must(gorgonia.Reshape(a, tensor.Shape{a.Shape()[1], a.Shape()[0]}))))
	case op == 11 && matrix && a.Shape()[0] > 1 && a.Shape()[1] > 1:
		n = must(gorgonia.SoftMax(a, r.next(2)))
	case op == 12:
		n = r.broadcast(a)
	}
	if n != nil && !n.IsScalar() && memory.Elements(n.Shape()) < 400 {
		r.pool = append(r.pool, n)
	}
}

func (r *grower) product(a *gorgonia.Node) *gorgonia.Node {
	for _, b := range r.pool {
		if b.Dims() == 2 && b.Shape()[0] == a.Shape()[1] {
			return must(gorgonia.Tanh(must(gorgonia.Mul(a, b))))
		}
	}
	return must(gorgonia.Tanh(must(gorgonia.Mul(a, must(gorgonia.Transpose(a))))))
}

// broadcast adds a vector to every row or column of matrix a.
func (r *grower) broadcast(a *gorgonia.Node) *gorgonia.Node {
	if a.Dims() != 2 {
		return nil
	}
	for _, b := range r.pool {
		if b.Dims() == 1 && b.Shape()[0] == a.Shape()[1] {
			row := must(gorgonia.Reshape(b, tensor.Shape{1, b.Shape()[0]}))
			return must(gorgonia.BroadcastSub(a, row, nil, []byte{0}))
		}
		if b.Dims() == 1 && b.Shape()[0] == a.Shape()[0] {
			return must(gorgonia.BroadcastHadamardProd(a, b, nil, []byte{1}))
		}
	}
	return nil
}

// recipeModel builds the model that the bytes of a recipe describe. Every
// variable is used.
func recipeModel(recipe []byte) build {
	return func(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
		m := model{g: g, inputs: nodes{leaf(g, dt, "x", 3, 4)}}
		m.variables = nodes{leaf(g, dt, "a", 3, 4), leaf(g, dt, "b", 4, 3), leaf(g, dt, "c", 4), leaf(g, dt, "d", 3, 4)}
		r := &grower{recipe: recipe, pool: append(append(nodes{}, m.inputs...), m.variables...)}
		for len(r.recipe) > 0 {
			r.grow()
		}
		var terms nodes
		for _, n := range append(append(nodes{}, m.variables...), r.pool[max(len(r.pool)-3, 0):]...) {
			terms = append(terms, must(gorgonia.Mean(must(gorgonia.Square(n)))))
		}
		m.loss = must(gorgonia.ReduceAdd(terms))
		m.outputs = nodes{r.pool[len(r.pool)/2], r.pool[len(r.pool)-1]}
		return m
	}
}

func FuzzGraph(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 1, 1, 0, 2, 5, 0, 3, 12, 4, 6, 1})
	for seed := range byte(15) {
		recipe := make([]byte, 60)
		x := uint32(seed) + 1
		for i := range recipe {
			x = x*1664525 + 1013904223
			recipe[i] = byte(x >> 24)
		}
		f.Add(recipe)
	}
	f.Fuzz(func(t *testing.T, recipe []byte) {
		if len(recipe) > 120 {
			return
		}
		b := recipeModel(recipe)
		want := naively(t, b, tensor.Float64, 5, false)
		if huge(want) {
			return
		}
		s := compiled(t, b, tensor.Float64, 5, false)
		first := s.run(t)
		same(t, first, want, 1e-9)
		same(t, s.run(t), first, 0)
	})
}

// huge reports whether the results of a graph are too large to compare:
// rounding errors grow with them.
func huge(r results) bool {
	for _, xs := range append(append([][]float64{{r.loss}}, r.gradients...), r.outputs...) {
		for _, x := range xs {
			if !(math.Abs(x) < 1e6) {
				return true
			}
		}
	}
	return false
}
