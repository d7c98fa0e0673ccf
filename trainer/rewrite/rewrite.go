// Package rewrite copies the Gorgonia graph of a program that was written for
// one machine, so that plx can train the copy on several. In the copy, plx's
// own operations replace those of Gorgonia's that have hidden state or wrong
// gradients. Variables from which the model only looks up rows become
// embedding tables.
//
//	made, err := rewrite.Model(m, true)
//	fmt.Println(made.Replaced) // [BatchNorm (2) MaxPool2D]
//	for _, variable := range made.Tables { ... } // workers exchange only the rows in use
//
// A variable becomes a table if all its uses are lookups of rows
// (gorgonia.ByIndices along the first axis, or ops.Rows) whose indices are an
// input of the model. The looked up rows become inputs of the new model.
//
// Gorgonia's vertices cannot be changed. A vertex that depends on a replaced
// vertex is therefore created again. The copy is complete before anything is
// differentiated.
//
// # What Model refuses
//
// Operations that package rewrite cannot replace stay in the graph; package
// compile refuses them by name. Model refuses a batch norm that was set to
// testing, because the trainer itself decides which runs are evaluations. It
// also refuses a pool with unequal padding on opposite sides, because Gorgonia
// pads the wrong side.
package rewrite

import (
	"fmt"
	"maps"
	"slices"

	"github.com/plx-run/plx/trainer/executor/vertex"
	"github.com/plx-run/plx/trainer/replica"
	"gorgonia.org/gorgonia"
)

// Made is a model after rewriting, and a report of the changes.
type Made struct {
	replica.Model          // the new model; the unchanged model if Replaced and Tables are empty
	Replaced      []string // Gorgonia's operations that were replaced, with their number if above 1: "Dropout (2)"
	// Tables are the variables of the old graph that became embedding tables.
	// They are no longer variables of the model. Their lookups are at the end
	// of Model.Lookups, table by table in this order.
	Tables gorgonia.Nodes
	Dense  []string // variables that are looked up but did not become tables, each with the reason
}

// Model copies the part of a model's graph that the model uses, and replaces
// operations in the copy. The running mean and variance of a batch norm become
// states of the new model. If find is true, Model also turns variables into
// embedding tables.
func Model(m replica.Model, find bool) (made Made, err error) {
	defer func() { // Gorgonia panics on some invalid graphs, so recover returns the panic as an error
		if r := recover(); r != nil {
			err = fmt.Errorf("copy the graph: %v", r)
		}
	}()
	wanted := wanted(m)
	used, err := below(wanted)
	if err != nil {
		return Made{}, err
	}
	if err := check(m.Loss.Graph(), used, wanted); err != nil {
		return Made{}, err
	}
	f := &finder{}
	if find {
		if f, err = findTables(m, used, wanted); err != nil {
			return Made{}, err
		}
	}
	tables := f.tables()
	if len(tables) == 0 && !slices.ContainsFunc(slices.Collect(maps.Keys(used)), replaceable) {
		return Made{Model: m, Dense: f.dense()}, nil
	}
	for _, n := range slices.Concat(m.Inputs, m.ShardInputs(), m.Kept(), m.LookupRows()) {
		used[n] = !slices.Contains(tables, n)
	}
	c := newCopier(f)
	for _, n := range m.Loss.Graph().AllNodes() { // AllNodes returns the vertices in the order of their creation, so generated names are the same in each copy
		if used[n] {
			if _, err := c.copy(n); err != nil {
				return Made{}, err
			}
		}
	}
	return Made{c.model(m, tables), c.replaced(), tables, f.dense()}, nil
}

// wanted returns the vertices whose values the model needs: loss, metrics,
// fetches, carried values and states.
func wanted(m replica.Model) gorgonia.Nodes {
	all := gorgonia.Nodes{m.Loss}
	all = slices.AppendSeq(all, maps.Values(m.Metrics))
	all = slices.AppendSeq(all, maps.Values(m.Fetches))
	all = slices.AppendSeq(all, maps.Values(m.Carried))
	for _, s := range m.States {
		all = append(all, s.Batch)
	}
	return all
}

// below returns the wanted vertices and all vertices that they are computed
// from.
func below(wanted gorgonia.Nodes) (map[*gorgonia.Node]bool, error) {
	seen, todo := map[*gorgonia.Node]bool{}, slices.Clone(wanted)
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if n == nil || seen[n] { // a nil vertex is skipped, because package compile reports it
			continue
		}
		seen[n] = true
		inputs, err := vertex.Children(n)
		if err != nil {
			return nil, err
		}
		todo = append(todo, inputs...)
	}
	return seen, nil
}

// copier builds the new graph, vertex by vertex.
type copier struct {
	to     *gorgonia.ExprGraph
	of     map[*gorgonia.Node]*gorgonia.Node // maps a vertex of the old graph to its copy in the new graph
	states []replica.State                   // running means and variances of the replaced batch norms
	counts map[string]int                    // number of replaced operations; the key is the name of the operation

	found   map[*gorgonia.Node]lookup           // maps a vertex of the old graph that looks up table rows to the table and the indices
	lookups map[*gorgonia.Node][]replica.Lookup // maps a table (a variable of the old graph) to its lookups in the new graph
}

func newCopier(f *finder) *copier {
	c := &copier{to: gorgonia.NewGraph(), of: map[*gorgonia.Node]*gorgonia.Node{}, counts: map[string]int{},
		found: map[*gorgonia.Node]lookup{}, lookups: map[*gorgonia.Node][]replica.Lookup{}}
	for _, all := range f.uses {
		for _, l := range all {
			c.found[l.n] = l
		}
	}
	return c
}

// model returns model m with the vertices of the new graph. tables are the
// variables that became embedding tables.
func (c *copier) model(m replica.Model, tables gorgonia.Nodes) replica.Model {
	variables := slices.DeleteFunc(slices.Clone(m.Variables), func(n *gorgonia.Node) bool { return slices.Contains(tables, n) })
	made := replica.Model{
		Inputs: c.all(m.Inputs), Variables: c.all(variables), Loss: c.of[m.Loss], Metrics: c.named(m.Metrics), Fetches: c.named(m.Fetches),
		Carried: c.named(m.Carried), Shard: [2]*gorgonia.Node{c.of[m.Shard[0]], c.of[m.Shard[1]]},
	}
	for _, s := range m.States {
		made.States = append(made.States, replica.State{Variable: c.of[s.Variable], Batch: c.of[s.Batch], Momentum: s.Momentum})
	}
	made.States = append(made.States, c.states...)
	for _, l := range m.Lookups {
		made.Lookups = append(made.Lookups, replica.Lookup{Table: l.Table, At: l.At, Rows: c.of[l.Rows], Index: l.Index})
	}
	at := 0
	if n := len(made.Lookups); n > 0 {
		at = made.Lookups[n-1].At + 1
	}
	for i, table := range tables {
		for _, l := range c.lookups[table] {
			l.At = at + i
			made.Lookups = append(made.Lookups, l)
		}
	}
	return made
}

func (c *copier) all(nodes gorgonia.Nodes) (made gorgonia.Nodes) {
	for _, n := range nodes {
		made = append(made, c.of[n])
	}
	return made
}

func (c *copier) named(nodes map[string]*gorgonia.Node) map[string]*gorgonia.Node {
	made := map[string]*gorgonia.Node{}
	for name, n := range nodes {
		made[name] = c.of[n]
	}
	return made
}

// replaced lists the replaced operations, sorted by name, with their number if
// it is above 1.
func (c *copier) replaced() (all []string) {
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		if n := c.counts[what]; n > 1 {
			what = fmt.Sprintf("%s (%d)", what, n)
		}
		all = append(all, what)
	}
	return all
}

// copy copies vertex n, and all vertices that it is computed from, to the new
// graph.
func (c *copier) copy(n *gorgonia.Node) (*gorgonia.Node, error) {
	if made := c.of[n]; made != nil {
		return made, nil
	}
	below, err := vertex.Children(n)
	if err != nil {
		return nil, err
	}
	if l, ok := c.found[n]; ok {
		if c.of[n], err = c.lookUp(l); err != nil {
			return nil, fmt.Errorf("rows of variable %q: %w", l.table.Name(), err)
		}
		return c.of[n], nil
	}
	inputs := make(gorgonia.Nodes, len(below))
	for i, b := range below {
		if inputs[i], err = c.copy(b); err != nil {
			return nil, err
		}
	}
	made, err := c.vertex(n, inputs)
	if err != nil {
		return nil, err
	}
	c.of[n] = made
	return made, nil
}

func (c *copier) vertex(n *gorgonia.Node, inputs gorgonia.Nodes) (*gorgonia.Node, error) {
	if _, constant := n.Op().(interface{ Value() gorgonia.Value }); constant || n.Op() == nil {
		return n.CloneTo(c.to), nil
	}
	if replaceable(n) {
		return c.replace(n, inputs)
	}
	return gorgonia.NewUniqueNode(gorgonia.WithType(n.Type()), gorgonia.WithOp(n.Op()), gorgonia.WithChildren(inputs),
		gorgonia.In(c.to), gorgonia.WithShape(n.Shape()...)), nil
}

// name counts a replaced operation, whose name is the parameter what. It
// returns a name for the new vertex that includes the count. The name is the
// same in every copy of the graph.
func (c *copier) name(what string) string {
	c.counts[what]++
	return fmt.Sprintf("gorgonia.%s%d", what, c.counts[what])
}
