package graph

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func named(names ...string) Graph {
	g := Graph{Vertices: []Vertex{}, Edges: []Edge{}}
	for i, name := range names {
		g.Vertices = append(g.Vertices, Vertex{ID: i, Name: name, Op: "op " + name, Shape: []int{i, 2}, Dtype: "float32", Kind: Computed})
		if i > 0 {
			g.Edges = append(g.Edges, Edge{From: i - 1, To: i})
		}
	}
	return g
}

// token is a lexical element of DOT: a quoted string, an identifier or number,
// "->", or one character.
var token = regexp.MustCompile(`^(?s)("(?:[^"\\]|\\.)*"|[A-Za-z_0-9]+|->|.)`)

// readDOT parses the part of the DOT language that WriteDOT uses. It returns
// the labels of the vertices, and the edges.
func readDOT(text string) (vertices map[string]string, edges []string, err error) {
	vertices = map[string]string{}
	var tokens []string
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		t := token.FindString(text)
		tokens, text = append(tokens, t), text[len(t):]
	}
	if len(tokens) < 3 || tokens[0] != "digraph" || tokens[1] != "{" || tokens[len(tokens)-1] != "}" {
		return nil, nil, fmt.Errorf("no digraph: %q", tokens)
	}
	statement := []string{}
	for _, t := range tokens[2 : len(tokens)-1] {
		if t != ";" {
			statement = append(statement, t)
			continue
		}
		s := strings.Join(statement, " ")
		switch {
		case len(statement) == 3 && statement[1] == "->":
			edges = append(edges, s)
		case len(statement) == 3 && statement[1] == "=":
		case len(statement) > 5 && statement[1] == "[" && statement[len(statement)-1] == "]":
			if vertices[statement[0]], err = attributes(statement[2 : len(statement)-1]); err != nil {
				return nil, nil, err
			}
		default:
			return nil, nil, fmt.Errorf("statement %s", s)
		}
		statement = statement[:0]
	}
	return vertices, edges, nil
}

// attributes parses a list name=value, ... and returns the value of label.
func attributes(list []string) (label string, err error) {
	for i := 0; i < len(list); i += 4 {
		if i+3 > len(list) || list[i+1] != "=" || i+3 < len(list) && list[i+3] != "," {
			return "", fmt.Errorf("attributes %q", list)
		}
		if list[i] == "label" {
			label = unquote(list[i+2])
		}
	}
	return label, nil
}

// unquote returns the text that Graphviz draws for a quoted label.
func unquote(s string) string {
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\n`, "\n", "&amp;", "&").Replace(s[1 : len(s)-1])
}

// drawn returns the text that Graphviz can draw for a name: without control
// characters and invalid UTF-8.
func drawn(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r == 0x7f {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}

func FuzzWriteDOT(f *testing.F) {
	f.Add("w", "layer/w:0")
	f.Add(`a"b`, `c\`)
	f.Add("a\\\"", "]; } // /* <b> &lt; \\N \n\t\x00\xff")
	f.Add(strings.Repeat("é", 81), strings.Repeat("x", 1000))
	f.Fuzz(func(t *testing.T, a, b string) {
		// Replace each invalid byte by one replacement character first, as
		// quote does. strings.ToValidUTF8 would replace a run of them by a
		// single one.
		a, b = string([]rune(a)), string([]rune(b))
		g := named(a, b)
		var out bytes.Buffer
		if err := g.WriteDOT(&out); err != nil {
			t.Fatal(err)
		}
		vertices, edges, err := readDOT(out.String())
		if err != nil {
			t.Fatalf("%v in\n%s", err, out.String())
		}
		if len(edges) != 1 || edges[0] != "v0 -> v1" || len(vertices) != 4 {
			t.Fatalf("edges %q, vertices %q", edges, vertices)
		}
		for i, name := range []string{a, b} {
			want := short(drawn(name)) + "\n" + short(drawn("op "+name)) + fmt.Sprintf("\n(%d, 2) float32", i)
			if got := vertices[fmt.Sprint("v", i)]; strings.TrimPrefix(got, "\n") != strings.TrimPrefix(want, "\n") {
				t.Fatalf("vertex %d has the label %q, want %q", i, got, want)
			}
		}
	})
}

func FuzzJSONRoundTrip(f *testing.F) {
	f.Add("w", "layer/w:0")
	f.Add("a\"b\\\n\x00<&>\u2028", "")
	f.Fuzz(func(t *testing.T, a, b string) {
		g := named(strings.ToValidUTF8(a, "?"), strings.ToValidUTF8(b, "?"))
		var out bytes.Buffer
		if err := g.WriteJSON(&out); err != nil {
			t.Fatal(err)
		}
		var again Graph
		if err := json.Unmarshal(out.Bytes(), &again); err != nil || !reflect.DeepEqual(again, g) {
			t.Fatalf("%+v, %v; want %+v", again, err, g)
		}
	})
}

func TestLabelsShowNameOperationShapeType(t *testing.T) {
	for want, v := range map[string]Vertex{
		"w\n(784, 100) float32":           {Name: "w", Shape: []int{784, 100}, Dtype: "float32"},
		"A × B\n(3) float64":              {Op: "A × B", Shape: []int{3}, Dtype: "float64"},
		"x\nx of y\n() int":               {Name: "x", Op: "x of y", Dtype: "int"},
		"const 1\n() float32":             {Name: "const 1", Op: "const 1", Dtype: "float32"},
		"()":                              {},
		strings.Repeat("n", 79) + "…\n()": {Name: strings.Repeat("n", 81)},
	} {
		if got := v.label(); got != want {
			t.Errorf("%+v: %q, want %q", v, got, want)
		}
	}
}

// The JSON must have the keys that the documentation of Graph lists, because
// other programs read them.
func TestJSONForm(t *testing.T) {
	g := Graph{Vertices: []Vertex{{ID: 0, Name: "a<b", Shape: []int{}, Dtype: "float32", Kind: Input}}, Edges: nil}
	const want = `{"vertices":[{"id":0,"name":"a<b","shape":[],"dtype":"float32","kind":"input"}],"edges":[]}`
	var out, compact bytes.Buffer
	if err := g.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&compact, out.Bytes()); err != nil || compact.String() != want {
		t.Errorf("got  %s\nwant %s (%v)", compact.String(), want, err)
	}
}

func TestSave(t *testing.T) {
	for name, want := range map[string]string{
		"a.dot": "a.dot", "a.json": "a.json", "a": "a.dot a.json", "a.svg": "a.svg.dot a.svg.json", "b/c/a": "b/c/a.dot b/c/a.json",
	} {
		dir := t.TempDir()
		for range 2 { // the second call overwrites the files of the first
			if err := named("w").Save(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		var files []string
		err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() {
				files = append(files, strings.TrimPrefix(path, dir+"/"))
				if info.Mode().Perm() != 0o644 {
					t.Errorf("%s has the mode %v", path, info.Mode())
				}
				checkForm(t, path)
			}
			return err
		})
		if got := strings.Join(files, " "); err != nil || got != want {
			t.Errorf("%s: files %s, %v; want %s", name, got, err, want)
		}
	}
}

func checkForm(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if json.Valid(text) != strings.HasSuffix(path, ".json") {
		t.Errorf("%s holds %s", path, text)
	}
}

func TestSaveReportsErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "taken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "folder.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"taken/x.dot", "folder.json"} {
		path := filepath.Join(dir, name)
		if err := named("w").Save(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Graph{}).Save(""); err == nil {
		t.Error("a file without a name")
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("left over: %v, %v", files, err)
	}
}
