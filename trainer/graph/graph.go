// Package graph writes the graph that a trainer computes, for people (DOT,
// which Graphviz draws) and for programs (JSON).
//
//	described, err := graph.From(g, graph.Marks{Inputs: model.Inputs, Variables: model.Variables, Loss: model.Loss})
//	if err != nil {
//		return err
//	}
//	err = described.Save("mlp") // mlp.dot and mlp.json; then: dot -Tsvg mlp.dot > mlp.svg
//
// The same model gives the same bytes. The files hold no values of tensors, and
// a graph cannot be rebuilt from them.
package graph

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"gorgonia.org/gorgonia"

	"github.com/plx-run/plx/internal/atomicfile"
)

// Graph is a directed graph of operations.
type Graph struct {
	Vertices []Vertex `json:"vertices"` // a vertex comes after its operands
	Edges    []Edge   `json:"edges"`    // by To, then by Operand
}

// Vertex is a tensor and the operation that computes it.
type Vertex struct {
	ID    int    `json:"id"`
	Name  string `json:"name,omitempty"`
	Op    string `json:"op,omitempty"` // empty for a leaf
	Shape []int  `json:"shape"`        // empty for a scalar
	Dtype string `json:"dtype,omitempty"`
	Kind  Kind   `json:"kind"`
}

// Kind is what a vertex is for.
type Kind string

// The kinds.
const (
	Input    Kind = "input"
	Variable Kind = "variable"
	Constant Kind = "constant"
	Computed Kind = "computed"
	Loss     Kind = "loss"
)

// Edge says that vertex From is the operand with number Operand, counted from
// 0, of vertex To.
type Edge struct {
	From    int `json:"from"`
	To      int `json:"to"`
	Operand int `json:"operand"`
}

// WriteJSON writes the graph as one JSON object, indented.
func (g Graph) WriteJSON(w io.Writer) error {
	if g.Vertices == nil {
		g.Vertices = []Vertex{}
	}
	if g.Edges == nil {
		g.Edges = []Edge{}
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(g)
}

// Save writes the graph to a file whose name ends in .dot or .json, in that
// format. If the name ends otherwise, it writes both files, with both endings.
// It writes each file under a temporary name first. It creates the folder if
// necessary.
func (g Graph) Save(path string) error {
	switch {
	case path == "":
		return fmt.Errorf("graph: no file is named")
	case strings.HasSuffix(path, ".dot"):
		return save(path, g.WriteDOT)
	case strings.HasSuffix(path, ".json"):
		return save(path, g.WriteJSON)
	}
	if err := save(path+".dot", g.WriteDOT); err != nil {
		return err
	}
	return save(path+".json", g.WriteJSON)
}

func save(path string, write func(io.Writer) error) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = atomicfile.Write(path, 0o644, write)
	}
	if err != nil {
		return fmt.Errorf("graph: write %s: %w", path, err)
	}
	return nil
}

// WriteDOT writes the graph in the language DOT. A label has the vertex's name,
// operation, shape and type. Inputs are at the top. Names longer than 80
// characters are cut.
func (g Graph) WriteDOT(w io.Writer) error {
	out := bufio.NewWriter(w) // its error comes back from Flush
	fmt.Fprint(out, "digraph {\n\tnode [style=filled, fontname=\"sans-serif\", fontcolor=\"#000000\", color=\"#777777\"];\n")
	fmt.Fprint(out, "\tedge [color=\"#777777\"];\n\tbgcolor=\"transparent\";\n\tfontcolor=\"#777777\";\n")
	for _, v := range g.Vertices {
		fmt.Fprintf(out, "\tv%d [label=%s, %s];\n", v.ID, quote(v.label()), looks[v.Kind])
	}
	for _, e := range g.Edges {
		fmt.Fprintf(out, "\tv%d -> v%d;\n", e.From, e.To)
	}
	fmt.Fprint(out, "}\n")
	return out.Flush()
}

// looks distinguish the kinds by shape as well as by colour.
var looks = map[Kind]string{
	Input:    `shape=invhouse, fillcolor="#cfe2ff"`,
	Variable: `shape=box3d, fillcolor="#ffe3b3"`,
	Constant: `shape=plaintext, fillcolor="#eeeeee"`,
	Computed: `shape=box, fillcolor="#ffffff"`,
	Loss:     `shape=doubleoctagon, fillcolor="#f7c6cf"`,
}

func (v Vertex) label() string {
	var lines []string
	for _, s := range []string{v.Name, v.Op} {
		if s != "" && (len(lines) == 0 || lines[0] != short(s)) {
			lines = append(lines, short(s))
		}
	}
	return strings.Join(append(lines, strings.TrimSpace(dimensions(v.Shape)+" "+v.Dtype)), "\n")
}

// dimensions writes (784, 100), and () for a scalar.
func dimensions(shape []int) string {
	return "(" + strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ", "), "[]") + ")"
}

const maxLabel = 80 // runes of a line

func short(s string) string {
	if utf8.RuneCountInString(s) <= maxLabel {
		return s
	}
	return string([]rune(s)[:maxLabel-1]) + "…"
}

// quote writes s as a quoted string of DOT that is drawn as s. In such a string
// only \" has a meaning to the language. In a label \\ and \n have one too, and
// & begins an HTML entity. Control characters, which Graphviz does not draw,
// and bytes that are not UTF-8 become the replacement character.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '&':
			b.WriteString("&amp;")
		case r < ' ' || r == 0x7f:
			b.WriteRune(utf8.RuneError)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

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
