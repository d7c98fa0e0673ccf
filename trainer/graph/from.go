package graph

import (
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"
)

// Marks says what vertices of a Gorgonia graph are for. All of them may be left
// out. A leaf without a mark is an input. Of several marks the first of loss,
// variable, input counts.
type Marks struct {
	Inputs    gorgonia.Nodes
	Variables gorgonia.Nodes
	Loss      *gorgonia.Node
}

// From describes g. A vertex comes after its operands, and otherwise in the
// order in which Gorgonia created the vertices. Ids count vertices in this
// order. Statements such as gorgonia.Read are vertices too. A marked vertex
// that is not in g is an error, and so is a circle. Nothing else may use g
// meanwhile.
func From(g *gorgonia.ExprGraph, m Marks) (Graph, error) {
	w := walk{from: g, ids: map[*gorgonia.Node]int{}, kinds: m.kinds()}
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
	return Graph{Vertices: w.vertices, Edges: w.edges}, nil
}

func (m Marks) kinds() map[*gorgonia.Node]Kind {
	kinds := map[*gorgonia.Node]Kind{}
	for _, n := range m.Inputs {
		kinds[n] = Input
	}
	for _, n := range m.Variables {
		kinds[n] = Variable
	}
	if m.Loss != nil {
		kinds[m.Loss] = Loss
	}
	return kinds
}

type walk struct {
	from  *gorgonia.ExprGraph
	ids   map[*gorgonia.Node]int  // by vertex; -1 while its operands are visited
	kinds map[*gorgonia.Node]Kind // of marked vertices

	vertices []Vertex
	edges    []Edge
}

// visit adds n and everything that it is computed from, once.
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
	id := len(w.vertices)
	w.ids[n] = id
	w.vertices = append(w.vertices, w.vertex(id, n))
	for i, operand := range operands {
		w.edges = append(w.edges, Edge{From: w.ids[operand], To: id, Operand: i})
	}
	return nil
}

// operands returns n's operands in order. Gorgonia's edges lead from a result
// to its operands.
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
	// Gorgonia invents names of computed vertices from its own ids.
	if strings.HasPrefix(v.Name, v.Op+"(") {
		v.Name = ""
	}
	// Every binary operation has this flag. It is only of interest if it is
	// set: then the result of a comparison is a number.
	v.Op = strings.TrimSuffix(v.Op, " false")
	return v
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

// dtype is the type of n's elements, or "" for a statement, for which Gorgonia
// panics.
func dtype(n *gorgonia.Node) (name string) {
	defer func() {
		if recover() != nil {
			name = ""
		}
	}()
	return n.Dtype().String()
}
