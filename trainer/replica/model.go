package replica

import (
	"slices"

	"gorgonia.org/gorgonia"
)

// Model names the nodes of one graph. The caller has checked it.
type Model struct {
	Inputs    gorgonia.Nodes // fed at every step
	Variables gorgonia.Nodes // trained; each has a value
	States    []State        // running averages
	Lookups   []Lookup       // in the order of their tables
	Loss      *gorgonia.Node // a scalar
	Metrics   map[string]*gorgonia.Node
	Fetches   map[string]*gorgonia.Node
}

// State is a variable that is not trained but follows a value of the graph.
type State struct {
	Variable, Batch *gorgonia.Node
}

// Lookup is an input that takes rows of an embedding table.
type Lookup struct {
	Table string         // its name
	At    int            // index of the table
	Rows  *gorgonia.Node // (n, width); its name is the feed's name for the n indices
}

// kept are the variables that every worker holds whole: the trained ones, then
// those of the states.
func (m Model) kept() gorgonia.Nodes {
	all := slices.Clone(m.Variables)
	for _, s := range m.States {
		all = append(all, s.Variable)
	}
	return all
}

func (m Model) lookups() (all gorgonia.Nodes) {
	for _, l := range m.Lookups {
		all = append(all, l.Rows)
	}
	return all
}
