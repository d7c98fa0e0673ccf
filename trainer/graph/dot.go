package graph

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// WriteDOT writes the graph in the language DOT. A label has the vertex's name,
// operation, shape and type. Inputs are at the top. Names longer than 80
// characters are cut.
func (g Graph) WriteDOT(w io.Writer) error {
	out := bufio.NewWriter(w) // its error comes back from Flush
	fmt.Fprintf(out, "digraph {\n\tlabel=%s;\n", quote(g.Name))
	fmt.Fprint(out, "\tnode [style=filled, fontname=\"sans-serif\", fontcolor=\"#000000\", color=\"#777777\"];\n")
	fmt.Fprint(out, "\tedge [color=\"#777777\"];\n\tbgcolor=\"transparent\";\n\tfontcolor=\"#777777\";\n")
	for _, v := range g.Vertices {
		look, ok := looks[v.Kind]
		if !ok {
			look = looks[Computed]
		}
		fmt.Fprintf(out, "\tv%d [label=%s, %s];\n", v.ID, quote(v.label()), look)
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
	Gradient: `shape=ellipse, fillcolor="#d4edd0"`,
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
