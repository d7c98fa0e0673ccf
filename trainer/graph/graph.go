// Package graph writes the computation graph of a model to files: as DOT,
// which Graphviz draws for people, and as JSON for programs.
//
//	described, err := graph.From(g, graph.Roles{Inputs: model.Inputs, Variables: model.Variables, Loss: model.Loss})
//	if err != nil {
//		return err
//	}
//	err = described.Save("mlp") // mlp.dot and mlp.json; then: dot -Tsvg mlp.dot > mlp.svg
//
// The same model always gives the same bytes. The files hold no tensor values,
// and no program can rebuild the graph from them.
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
	Vertices []Vertex `json:"vertices"` // sorted topologically: a vertex comes after its operands
	Edges    []Edge   `json:"edges"`    // sorted by field To, then by field Operand
}

// Vertex is a tensor and the operation that computes it.
type Vertex struct {
	ID    int    `json:"id"`
	Name  string `json:"name,omitempty"`
	Op    string `json:"op,omitempty"` // name of the operation; empty for a vertex without operands
	Shape []int  `json:"shape"`        // lengths of the tensor's axes; empty for a scalar
	Dtype string `json:"dtype,omitempty"`
	Kind  Kind   `json:"kind"`
}

// Kind says which role a vertex has in the model, such as input, variable or
// loss.
type Kind string

// The roles of a vertex.
const (
	Input    Kind = "input"
	Variable Kind = "variable"
	Constant Kind = "constant"
	Computed Kind = "computed"
	Loss     Kind = "loss"
)

// Edge leads from an operand to the operation that takes it. Operand is the
// operand's position among the arguments of vertex To, counted from 0.
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

// Save writes the graph to the file path, in the format that its ending .dot
// or .json names. If path has neither ending, Save writes two files, path.dot
// and path.json. It creates the folder if necessary. Save writes each file
// under a temporary name and then renames it.
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

// WriteDOT writes the graph in Graphviz's language DOT. The label of a vertex
// shows its name, operation, shape and element type. Names longer than 80
// characters are truncated.
func (g Graph) WriteDOT(w io.Writer) error {
	out := bufio.NewWriter(w) // Flush below returns any write error
	fmt.Fprint(out, "digraph {\n\tnode [style=filled, fontname=\"sans-serif\", fontcolor=\"#000000\", color=\"#777777\"];\n")
	fmt.Fprint(out, "\tedge [color=\"#777777\"];\n\tbgcolor=\"transparent\";\n\tfontcolor=\"#777777\";\n")
	for _, v := range g.Vertices {
		fmt.Fprintf(out, "\tv%d [label=%s, %s];\n", v.ID, quote(v.label()), styles[v.Kind])
	}
	for _, e := range g.Edges {
		fmt.Fprintf(out, "\tv%d -> v%d;\n", e.From, e.To)
	}
	fmt.Fprint(out, "}\n")
	return out.Flush()
}

// styles are the Graphviz attributes of each kind of vertex. Kinds differ in
// shape as well as in colour, so that a print without colour shows them too.
var styles = map[Kind]string{
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

// dimensions formats a tensor's shape as Python would: "(784, 100)", and "()"
// for a scalar.
func dimensions(shape []int) string {
	return "(" + strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ", "), "[]") + ")"
}

const maxLabel = 80 // longest line of a label, in runes

func short(s string) string {
	if utf8.RuneCountInString(s) <= maxLabel {
		return s
	}
	return string([]rune(s)[:maxLabel-1]) + "…"
}

// quote returns s as a quoted DOT string that Graphviz draws as s. It escapes
// quotes, backslashes and newlines, and the & that would begin an HTML entity.
// Graphviz draws neither control characters nor invalid UTF-8, so quote
// replaces them by the Unicode replacement character.
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

// Roles names the vertices of a Gorgonia graph that are inputs, variables or
// the loss. Every field is optional. A leaf of the graph that no field lists
// counts as an input. A vertex that several fields list has the first of these
// roles: loss, variable, input.
type Roles struct {
	Inputs    gorgonia.Nodes
	Variables gorgonia.Nodes
	Loss      *gorgonia.Node
}

// From describes the Gorgonia graph g. The vertices are sorted topologically;
// among several possible orders, From chooses that in which Gorgonia created
// them. The ID of a vertex is its index in this order. Statements such as
// gorgonia.Read are vertices too.
//
// From returns an error if g has a cycle, or if m lists a vertex that is not
// in g. The caller must ensure that no other goroutine uses g during the call.
func From(g *gorgonia.ExprGraph, m Roles) (Graph, error) {
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

func (m Roles) kinds() map[*gorgonia.Node]Kind {
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
	ids   map[*gorgonia.Node]int  // ID of each visited vertex; -1 while visit is visiting its operands
	kinds map[*gorgonia.Node]Kind // kind of each vertex that Roles lists

	vertices []Vertex
	edges    []Edge
}

// visit adds vertex n to the description, after all vertices from which n is
// computed. It skips vertices that it has visited before.
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

// operands returns the arguments of vertex n in order. In a Gorgonia graph,
// edges lead from a result to its arguments.
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
	// Gorgonia names a computed vertex by its operation and the internal ids of
	// the operands. Such a name says nothing to a reader, so it is left out.
	if strings.HasPrefix(v.Name, v.Op+"(") {
		v.Name = ""
	}
	// Gorgonia appends a flag, true or false, to the name of every binary
	// operation. The flag is true only for comparisons that return numbers.
	// "false" is left out here.
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

// dtype returns the element type of vertex n. It returns "" for statements
// such as gorgonia.Read, for which Gorgonia's Dtype panics.
func dtype(n *gorgonia.Node) (name string) {
	defer func() {
		if recover() != nil {
			name = ""
		}
	}()
	return n.Dtype().String()
}
