package graph

import (
	"bytes"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// regression builds a small model with the loss mean((x·w + b - y)²)/2.
func regression(t *testing.T) (*gorgonia.ExprGraph, Roles) {
	t.Helper()
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(8, 3), gorgonia.WithName("x"))
	y := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(8, 1), gorgonia.WithName("y"))
	w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(3, 1), gorgonia.WithName("w"))
	b := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(1, 1), gorgonia.WithName("b"))
	out := gorgonia.Must(gorgonia.BroadcastAdd(gorgonia.Must(gorgonia.Mul(x, w)), b, nil, []byte{0}))
	mean := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(out, y))))))
	loss := gorgonia.Must(gorgonia.Mul(gorgonia.NewConstant(float32(0.5)), mean))
	return g, Roles{Inputs: gorgonia.Nodes{x, y}, Variables: gorgonia.Nodes{w, b}, Loss: loss}
}

func TestFromGorgonia(t *testing.T) {
	g, marks := regression(t)
	var read gorgonia.Value
	gorgonia.Read(marks.Loss, &read)
	described, err := From(g, marks)
	if err != nil {
		t.Fatal(err)
	}
	if len(described.Vertices) != len(g.AllNodes()) {
		t.Errorf("%d vertices of %d", len(described.Vertices), len(g.AllNodes()))
	}
	kinds, byName := map[Kind]int{}, map[string]Vertex{}
	for i, v := range described.Vertices {
		if v.ID != i {
			t.Errorf("vertex %d has the id %d", i, v.ID)
		}
		kinds[v.Kind]++
		byName[v.Name] = v
	}
	if kinds[Input] != 2 || kinds[Variable] != 2 || kinds[Loss] != 1 || kinds[Constant] == 0 || kinds[Computed] < 4 {
		t.Errorf("kinds %v", kinds)
	}
	if w := byName["w"]; w.Kind != Variable || w.Dtype != "float32" || len(w.Shape) != 2 || w.Shape[0] != 3 || w.Op != "" {
		t.Errorf("w is %+v", w)
	}
	checkEdges(t, described)
}

// checkEdges checks that operands come before the vertices that use them, and
// that the operands of each vertex are numbered without gaps.
func checkEdges(t *testing.T, g Graph) {
	t.Helper()
	operands := map[int]int{}
	last := 0
	for _, e := range g.Edges {
		if e.From >= e.To || e.To < last || e.Operand != operands[e.To] {
			t.Errorf("edge %+v after an edge to %d with %d operands before it", e, last, operands[e.To])
		}
		operands[e.To]++
		last = e.To
	}
	for _, v := range g.Vertices {
		if leaf := v.Kind == Input || v.Kind == Variable || v.Kind == Constant; leaf != (operands[v.ID] == 0) {
			t.Errorf("%+v has %d operands", v, operands[v.ID])
		}
	}
}

// The order of operands must be kept, because a - b is not b - a. The same
// vertex may be both operands.
func TestOperandsKeepTheirOrder(t *testing.T) {
	g := gorgonia.NewGraph()
	a := gorgonia.NewScalar(g, tensor.Float64, gorgonia.WithName("a"))
	b := gorgonia.NewScalar(g, tensor.Float64, gorgonia.WithName("b"))
	gorgonia.Must(gorgonia.Sub(b, a))
	gorgonia.Must(gorgonia.Mul(a, a))
	described, err := From(g, Roles{Variables: gorgonia.Nodes{a}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Edge{{1, 2, 0}, {0, 2, 1}, {0, 3, 0}, {0, 3, 1}}
	if len(described.Edges) != len(want) {
		t.Fatalf("edges %v, want %v", described.Edges, want)
	}
	for i, e := range described.Edges {
		if e != want[i] {
			t.Errorf("edges %v, want %v", described.Edges, want)
		}
	}
	if v := described.Vertices[2]; v.Name != "" || v.Op == "" || len(v.Shape) != 0 || v.Dtype != "float64" {
		t.Errorf("a - b is %+v", v)
	}
	if described.Vertices[1].Kind != Input {
		t.Errorf("a leaf without a mark is %+v", described.Vertices[1])
	}
}

func TestSameModelGivesSameBytes(t *testing.T) {
	var first [2]string
	for i := range 20 {
		described, err := From(regression(t))
		if err != nil {
			t.Fatal(err)
		}
		var dot, text bytes.Buffer
		if err := described.WriteDOT(&dot); err != nil {
			t.Fatal(err)
		}
		if err := described.WriteJSON(&text); err != nil {
			t.Fatal(err)
		}
		got := [2]string{dot.String(), text.String()}
		if i == 0 {
			first = got
		} else if got != first {
			t.Fatalf("run %d differs:\n%s\nfirst:\n%s", i, got[0], first[0])
		}
	}
}

func TestMarksOfAnotherGraphAreRefused(t *testing.T) {
	g, _ := regression(t)
	_, other := regression(t)
	for _, m := range []Roles{{Loss: other.Loss}, {Variables: other.Variables}} {
		if _, err := From(g, m); err == nil || !strings.Contains(err.Error(), "is not in the graph") {
			t.Errorf("%+v: %v", m, err)
		}
	}
	if described, err := From(gorgonia.NewGraph(), Roles{}); err != nil || len(described.Vertices) != 0 {
		t.Errorf("an empty graph: %+v, %v", described, err)
	}
}
