package telemetry

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/plx-run/plx/trainer/graph"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/summary"
	"github.com/plx-run/plx/trainer/wire"
)

// Histograms returns a histogram of the values of each variable. memory[i]
// holds the bytes of variables[i].
func Histograms(variables []layout.Variable, memory [][]byte) (all []summary.Histogram) {
	for i, v := range variables {
		name := "variables/" + v.Name
		if v.Dtype == layout.Float32 {
			all = append(all, summary.NewHistogram(name, wire.Floats[float32](memory[i])))
		} else {
			all = append(all, summary.NewHistogram(name, wire.Floats[float64](memory[i])))
		}
	}
	return all
}

// Graph writes the graph of the model to the TensorBoard event file. If the
// graph is too large for TensorBoard, it logs a warning instead.
func (r *Recorder) Graph(described graph.Graph) error {
	if r.summaries == nil {
		return nil
	}
	if n := len(described.Vertices); n > summary.MostNodes {
		r.logf(slog.LevelWarn, "the summaries have no graph: the model's has %d vertices, more than the %d that TensorBoard can draw", n, summary.MostNodes)
		return nil
	}
	return r.summaries.Graph(nodes(described))
}

// nameReplacer replaces the characters that have a special meaning in
// TensorBoard's names of nodes.
var nameReplacer = strings.NewReplacer(":", "_", "^", "_", " ", "_")

// nodes converts the graph to TensorBoard's nodes. A node is named after its
// vertex, or after the vertex's operation if the vertex has no name. If
// another node has that name, nodes appends the vertex's ID.
func nodes(g graph.Graph) []summary.Node {
	all, taken := make([]summary.Node, len(g.Vertices)), map[string]bool{}
	for i, v := range g.Vertices {
		name := nameReplacer.Replace(v.Name)
		if name == "" {
			name = nameReplacer.Replace(v.Op)
		}
		if name == "" || taken[name] {
			name = fmt.Sprintf("%s_%d", name, v.ID)
		}
		taken[name] = true
		op := v.Op
		if op == "" {
			op = string(v.Kind)
		}
		all[i] = summary.Node{Name: name, Op: op, Shape: v.Shape, Dtype: v.Dtype}
	}
	for _, e := range g.Edges {
		all[e.To].Inputs = append(all[e.To].Inputs, all[e.From].Name)
	}
	return all
}
