package graph

import (
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
)

// Marks says which vertices of a Gorgonia graph are more than computed values.
// Any may be left out; a leaf that is not marked is an input. Where a vertex
// is marked twice the first of loss, gradient, variable, input counts.
type Marks struct {
	Name      string // of the graph
	Inputs    gorgonia.Nodes
	Variables gorgonia.Nodes
	Gradients gorgonia.Nodes
	Loss      *gorgonia.Node
}

// From describes g. A vertex comes after its operands, and otherwise when
// Gorgonia came to know it: ids count vertices in that order. Statements, such
// as gorgonia.Read, are vertices too. A marked vertex that is not in g, and a
// circle, are errors. g must not be changed meanwhile, nor given to another
// call of Gorgonia.
func From(g *gorgonia.ExprGraph, m Marks) (Graph, error) {
	w := walk{from: g, ids: map[*gorgonia.Node]int{}, kinds: m.kinds(), out: Graph{Name: m.Name}}
	for _, n := range g.AllNodes() {
		if err := w.visit(n); err != nil {
			return Graph{}, err
		}
	}
	for n, kind := range w.kinds {
		if _, ok := w.ids[n]; !ok {
			return Graph{}, fmt.Errorf("graph: the %s %q is not in the graph", kind, n.Name())
		}
	}
	return w.out, nil
}

func (m Marks) kinds() map[*gorgonia.Node]Kind {
	kinds := map[*gorgonia.Node]Kind{}
	for _, marked := range []struct {
		nodes gorgonia.Nodes
		kind  Kind
	}{{m.Inputs, Input}, {m.Variables, Variable}, {m.Gradients, Gradient}, {gorgonia.Nodes{m.Loss}, Loss}} {
		for _, n := range marked.nodes {
			if n != nil {
				kinds[n] = marked.kind
			}
		}
	}
	return kinds
}

type walk struct {
	from  *gorgonia.ExprGraph
	ids   map[*gorgonia.Node]int // -1: its operands are being visited
	kinds map[*gorgonia.Node]Kind
	out   Graph
}

// visit adds n and what it is computed from, unless it is there.
func (w *walk) visit(n *gorgonia.Node) error {
	if id, ok := w.ids[n]; ok {
		if id < 0 {
			return fmt.Errorf("graph: %q is computed from itself", n.Name())
		}
		return nil
	}
	w.ids[n] = -1
	operands := w.operands(n)
	for _, operand := range operands {
		if err := w.visit(operand); err != nil {
			return err
		}
	}
	id := len(w.out.Vertices)
	w.ids[n] = id
	w.out.Vertices = append(w.out.Vertices, w.vertex(id, n))
	for i, operand := range operands {
		w.out.Edges = append(w.out.Edges, Edge{From: w.ids[operand], To: id, Operand: i})
	}
	return nil
}

// operands are n's, in order. Gorgonia's edges lead from a result to its
// operands.
func (w *walk) operands(n *gorgonia.Node) gorgonia.Nodes {
	var operands gorgonia.Nodes
	for all := w.from.From(n.ID()); all != nil && all.Next(); {
		operands = append(operands, all.Node().(*gorgonia.Node))
	}
	return operands
}

func (w *walk) vertex(id int, n *gorgonia.Node) Vertex {
	v := Vertex{ID: id, Name: n.Name(), Shape: append([]int{}, n.Shape()...), Dtype: dtype(n), Kind: w.kinds[n]}
	if v.Kind == "" {
		v.Kind = kindOf(n)
	}
	if n.Op() == nil {
		return v
	}
	v.Op = n.Op().String()
	// Gorgonia makes up names of computed vertices, out of ids of its own.
	if strings.HasPrefix(v.Name, v.Op+"(") {
		v.Name = ""
	}
	if v.Kind == Gradient && v.Name == "" {
		v.Name = gradientName(n)
	}
	// A flag of every binary operation that means something where it is set:
	// the comparison's result is a number.
	v.Op = strings.TrimSuffix(v.Op, " false")
	return v
}

// gradientName says what n is the gradient of, where Gorgonia knows leaves.
func gradientName(n *gorgonia.Node) string {
	var names []string
	for _, of := range n.DerivOf() {
		if of.Op() == nil {
			names = append(names, of.Name())
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "gradient of " + strings.Join(slices.Compact(names), " and ")
}

func kindOf(n *gorgonia.Node) Kind {
	if n.Op() == nil {
		return Input
	}
	if _, ok := n.Op().(interface{ Value() gorgonia.Value }); ok {
		return Constant
	}
	return Computed
}

// dtype is the type of n's elements, or "" for a statement: of what has no
// element Gorgonia panics.
func dtype(n *gorgonia.Node) (name string) {
	defer func() {
		if recover() != nil {
			name = ""
		}
	}()
	return n.Dtype().String()
}
