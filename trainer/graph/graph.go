package graph

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Graph is a directed graph of operations.
type Graph struct {
	Name     string   `json:"name,omitempty"`
	Vertices []Vertex `json:"vertices"` // operands before those that use them
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
	Gradient Kind = "gradient" // of the loss, by a variable or an input
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
	text := new(strings.Builder)
	if err := write(text); err != nil {
		return fmt.Errorf("graph: write %s: %w", path, err)
	}
	if err := replace(path, text.String()); err != nil {
		return fmt.Errorf("graph: write %s: %w", path, err)
	}
	return nil
}

func replace(path, text string) error {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if failed := f.Chmod(0o644); err == nil {
		err = failed
	}
	if failed := f.Close(); err == nil {
		err = failed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) // the first error says more
	}
	return err
}
