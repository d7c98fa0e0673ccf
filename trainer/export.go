package trainer

import "github.com/plx-run/plx/trainer/graph"

// exportGraph writes the model's graph, gradients included.
func exportGraph(path string, m Model) error {
	described, err := graph.From(m.Loss.Graph(), graph.Marks{
		Inputs: append(m.Inputs[:len(m.Inputs):len(m.Inputs)], m.lookups()...), Variables: m.kept(), Loss: m.Loss,
	})
	if err != nil {
		return err
	}
	return described.Save(path)
}
