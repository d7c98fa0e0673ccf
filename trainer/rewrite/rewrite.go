// Package rewrite makes of the graph of a single-device program one that is trained: it
// copies the graph, puts plx's operations in the place of those of Gorgonia's that have
// hidden state or wrong gradients, and finds variables that are tables.
//
//	made, err := rewrite.Model(m, true)
//	fmt.Println(made.Replaced) // [BatchNorm (2) MaxPool2D]
//	for _, variable := range made.Tables { ... } // of which only rows travel
//
// A variable is a table if all its uses are lookups of rows (gorgonia.ByIndices along the
// first axis, or ops.Rows) whose indices are an input. The rows become inputs.
//
// Gorgonia's vertices cannot be changed, so a vertex above a replaced one is made
// anew. The copy is complete before anything is differentiated.
//
// # What it refuses
//
// Operations that it cannot put right stay as they are; package compile refuses
// them by name. It refuses a batch norm that was set to testing, because the trainer
// itself says when a run is an evaluation, and a pool with unequal padding on
// opposite sides, which Gorgonia puts on the wrong side.
package rewrite

import (
	"fmt"
	"maps"
	"slices"

	"github.com/plx-run/plx/trainer/executor/vertex"
	"github.com/plx-run/plx/trainer/replica"
	"gorgonia.org/gorgonia"
)

// Made is what became of a model.
type Made struct {
	replica.Model          // the model that was given, if neither Replaced nor Tables has anything
	Replaced      []string // operations of Gorgonia's that were replaced, each with its number: "Dropout (2)"
	// Tables are the variables, in the old graph, that became tables. They are no
	// variables of the model any more: their lookups follow those of its other tables,
	// in this order.
	Tables gorgonia.Nodes
	Dense  []string // each variable that is looked up and is no table, with the reason
}

// Model copies what is wanted of a model's graph, with replaced operations. The running
// values of batch norms are states of the new model. find makes it look for tables.
func Model(m replica.Model, find bool) (made Made, err error) {
	defer func() { // as package compile does: Gorgonia panics on what it does not expect
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
	for _, n := range m.Loss.Graph().AllNodes() { // in the order of the user's program, so that names are the same each time
		if used[n] {
			if _, err := c.copy(n); err != nil {
				return Made{}, err
			}
		}
	}
	return Made{c.model(m, tables), c.replaced(), tables, f.dense()}, nil
}

// wanted is everything that is computed for its own sake.
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

// below are vertices and everything that they are computed from.
func below(wanted gorgonia.Nodes) (map[*gorgonia.Node]bool, error) {
	seen, todo := map[*gorgonia.Node]bool{}, slices.Clone(wanted)
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if n == nil || seen[n] { // nil is for package compile to refuse
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

// copier makes the new graph.
type copier struct {
	to     *gorgonia.ExprGraph
	of     map[*gorgonia.Node]*gorgonia.Node // by vertex of the old graph
	states []replica.State                   // of batch norms
	counts map[string]int                    // by what was replaced

	found   map[*gorgonia.Node]lookup           // by vertex that looks up rows of a table
	lookups map[*gorgonia.Node][]replica.Lookup // by table
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

// model is m in the new graph, with these of its variables as tables.
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

// replaced says what was replaced, and how often.
func (c *copier) replaced() (all []string) {
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		if n := c.counts[what]; n > 1 {
			what = fmt.Sprintf("%s (%d)", what, n)
		}
		all = append(all, what)
	}
	return all
}

// copy makes n and everything that it is computed from.
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

// name counts what is replaced. It returns what was counted as a name, which is the same in every
// copy of the graph.
func (c *copier) name(what string) string {
	c.counts[what]++
	return fmt.Sprintf("gorgonia.%s%d", what, c.counts[what])
}
