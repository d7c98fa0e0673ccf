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
