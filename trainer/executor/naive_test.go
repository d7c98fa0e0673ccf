package executor

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// naive is a simple interpreter of graphs: it computes each vertex with the Do
// method of its operation, from copies of the inputs. It plans no memory and
// merges no vertices.
type naive struct {
	leaves map[*gorgonia.Node]gorgonia.Value
	seen   map[*gorgonia.Node]gorgonia.Value
}

func (n *naive) value(t testing.TB, v *gorgonia.Node) gorgonia.Value {
	t.Helper()
	if x := n.seen[v]; x != nil {
		return x
	}
	var x gorgonia.Value
	switch {
	case v.Op() == nil:
		if x = n.leaves[v]; x == nil {
			x = v.Value()
		}
	case isConstant(v):
		x = v.Value()
	default:
		var inputs []gorgonia.Value
		for _, c := range children(v) {
			inputs = append(inputs, duplicate(t, c, n.value(t, c)))
		}
		var err error
		x, err = v.Op().Do(inputs...)
		if err != nil {
			t.Fatalf("%v of %v: %v", v.Op(), shapesOf(inputs), err)
		}
		x = duplicate(t, v, x)
	}
	n.seen[v] = x
	return x
}

// isConstant reports whether v is one of Gorgonia's constants.
func isConstant(v *gorgonia.Node) bool {
	return strings.Contains(fmt.Sprintf("%T", v.Op()), "gorgonia.constant")
}

// children returns the inputs of a vertex, which Gorgonia does not export.
func children(v *gorgonia.Node) (below gorgonia.Nodes) {
	f := reflect.ValueOf(v).Elem().FieldByName("children")
	for i := range f.Len() {
		below = append(below, (*gorgonia.Node)(f.Index(i).UnsafePointer()))
	}
	return below
}

// duplicate returns a copy of x with the shape of vertex v.
func duplicate(t testing.TB, v *gorgonia.Node, x gorgonia.Value) gorgonia.Value {
	shape := v.Shape()
	if v.IsScalar() {
		shape = tensor.Shape{}
	}
	b := memory.Aligned(memory.Elements(shape) * int(x.Dtype().Size()))
	if err := memory.Copy(b, x); err != nil {
		t.Fatalf("%v: %v", v, err)
	}
	out, err := memory.Wrap(x.Dtype(), shape, v.IsScalar(), b)
	check(t, err)
	return out
}

func shapesOf(vs []gorgonia.Value) (out []string) {
	for _, v := range vs {
		out = append(out, fmt.Sprintf("%T%v", v, v.Shape()))
	}
	return out
}

// naively runs a model with the naive interpreter and returns the results.
func naively(t testing.TB, b build, dt tensor.Dtype, seed uint64, positive bool) results {
	t.Helper()
	m := b(gorgonia.NewGraph(), dt)
	n := &naive{map[*gorgonia.Node]gorgonia.Value{}, map[*gorgonia.Node]gorgonia.Value{}}
	for i, v := range values(m.variables, seed, positive) {
		n.leaves[m.variables[i]] = v
	}
	for i, v := range values(m.inputs, seed+1, positive) {
		n.leaves[m.inputs[i]] = v
	}
	var r results
	if m.loss != nil {
		grads, err := gorgonia.Grad(m.loss, m.variables...)
		check(t, err)
		for _, g := range grads {
			r.gradients = append(r.gradients, floatsOf(t, n.value(t, g)))
		}
		r.loss = floatsOf(t, n.value(t, m.loss))[0]
	}
	for _, o := range m.outputs {
		r.outputs = append(r.outputs, floatsOf(t, n.value(t, o)))
	}
	return r
}
