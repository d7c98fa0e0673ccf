package trainer

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/plx-run/plx/trainer/graph"
)

// exportGraph writes the model's graph, gradients included.
func exportGraph(path string, m Model) error {
	described, err := m.describe()
	if err != nil {
		return err
	}
	return described.Save(path)
}

// digest stands for the model's graph: names, operations, shapes and types.
func (m Model) digest() (string, error) {
	described, err := m.describe()
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	if err := described.WriteJSON(&text); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(text.Bytes())), nil
}

func (m Model) describe() (graph.Graph, error) {
	return graph.From(m.Loss.Graph(), graph.Marks{
		Inputs: append(m.Inputs[:len(m.Inputs):len(m.Inputs)], m.lookups()...), Variables: m.kept(), Loss: m.Loss,
	})
}
