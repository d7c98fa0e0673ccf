package compile

import (
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// merge merges two values only if all fields of their operations are equal.
func TestMergeComparesAllFieldsOfOperations(t *testing.T) {
	a := gorgonia.NewMatrix(gorgonia.NewGraph(), tensor.Float64, gorgonia.WithShape(3, 4), gorgonia.WithName("a"))
	b := newBuilder(Plan{Inputs: gorgonia.Nodes{a}})
	in, err := b.value(a)
	if err != nil {
		t.Fatal(err)
	}
	var vs []*Value
	for _, op := range []Op{{Kind: Softmax, Axes: []int{1}}, {Kind: Softmax, Axes: []int{1}, Log: true}, {Kind: Softmax, Axes: []int{1}}, {Kind: Softmax, Axes: []int{0}}} {
		vs = append(vs, b.merge(newValue(a, op, []*Value{in})))
	}
	if vs[0] == vs[1] || vs[0] != vs[2] || vs[0] == vs[3] {
		t.Errorf("merged: softmax with its logarithm %t, with itself %t, with another axis %t", vs[0] == vs[1], vs[0] == vs[2], vs[0] == vs[3])
	}
}
