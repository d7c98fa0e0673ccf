package rewrite

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/executor/vertex"
	"github.com/plx-run/plx/trainer/nn/ops"
	"github.com/plx-run/plx/trainer/replica"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// lookup describes a vertex n that looks up rows. table is the variable with
// the rows, and index holds the row numbers.
type lookup struct{ n, table, index *gorgonia.Node }

// asLookup returns n as a lookup. It returns false unless n looks up rows
// along the first axis.
func asLookup(n *gorgonia.Node, below []*gorgonia.Node) (lookup, bool) {
	name, f, err := vertex.Fields(n.Op())
	if err != nil || !ops.LooksUp(n.Op()) && (name != "byIndicesOp" || f[0].Int() != 0) {
		return lookup{}, false
	}
	return lookup{n, below[0], below[1]}, true
}

// finder finds variables from which the model looks up rows.
type finder struct {
	m     replica.Model
	uses  map[*gorgonia.Node][]lookup // lookups of each variable that can become a table
	other map[*gorgonia.Node]string   // reasons why a variable that is looked up stays an ordinary (dense) variable
}

// findTables finds the variables that can become embedding tables: all uses of
// the variable are lookups, and the indices are an input. For other variables
// that are looked up, it records the reason why they cannot.
func findTables(m replica.Model, used map[*gorgonia.Node]bool, wanted gorgonia.Nodes) (*finder, error) {
	f := &finder{m: m, uses: map[*gorgonia.Node][]lookup{}, other: map[*gorgonia.Node]string{}}
	reasons := map[*gorgonia.Node]string{}
	for _, n := range m.Loss.Graph().AllNodes() { // AllNodes returns the vertices in the order in which the user's program created them
		if !used[n] {
			continue
		}
		below, err := vertex.Children(n)
		if err != nil {
			return nil, err
		}
		l, ok := asLookup(n, below)
		if ok && slices.Contains(m.Variables, l.table) {
			f.uses[l.table] = append(f.uses[l.table], l)
			if why := f.unfit(l); why != "" {
				reasons[l.table] = why
			}
			below = below[1:]
		}
		for _, b := range below {
			reasons[b] = fmt.Sprintf("%v uses it too", n.Op())
		}
	}
	for _, n := range wanted {
		reasons[n] = "its value is wanted as a whole"
	}
	for v := range f.uses {
		if reasons[v] != "" {
			f.other[v] = reasons[v]
			delete(f.uses, v)
		}
	}
	return f, nil
}

// unfit returns the reason why lookup l prevents its variable from becoming a
// table, or "" if it does not.
func (f *finder) unfit(l lookup) string {
	dt := l.index.Dtype()
	switch {
	case l.index.Op() != nil || !slices.Contains(f.m.Inputs, l.index):
		return "its indices are no input"
	case dt != tensor.Int && dt != tensor.Int32 && dt != tensor.Int64 || len(l.index.Shape()) != 1:
		return fmt.Sprintf("its indices are %v of shape %v, and not a vector of int, int32 or int64", dt, l.index.Shape())
	}
	return ""
}

// tables returns the variables that become tables, in the order of the model's
// variables.
func (f *finder) tables() (all gorgonia.Nodes) {
	for _, v := range f.m.Variables {
		if f.uses[v] != nil {
			all = append(all, v)
		}
	}
	return all
}

// dense returns one text for each variable that is looked up but does not
// become a table: its name and the reason.
func (f *finder) dense() (all []string) {
	for _, v := range f.m.Variables {
		if why := f.other[v]; why != "" {
			all = append(all, fmt.Sprintf("%q: %s", v.Name(), why))
		}
	}
	return all
}

// lookUp adds an input to the new graph for the rows that lookup l reads, and
// returns it in the shape of the lookup's result.
func (c *copier) lookUp(l lookup) (*gorgonia.Node, error) {
	name := fmt.Sprintf("rows of %s at %s", l.table.Name(), l.index.Name())
	for i := 2; len(c.to.ByName(name)) > 0; i++ {
		name = fmt.Sprintf("rows of %s at %s, %d", l.table.Name(), l.index.Name(), i)
	}
	n := memory.Elements(l.index.Shape())
	rows := gorgonia.NewMatrix(c.to, l.table.Dtype(), gorgonia.WithName(name), gorgonia.WithShape(n, memory.Elements(l.table.Shape()[1:])))
	c.lookups[l.table] = append(c.lookups[l.table], replica.Lookup{Table: l.table.Name(), Rows: rows, Index: l.index.Name()})
	if slices.Equal(rows.Shape(), l.n.Shape()) {
		return rows, nil
	}
	return gorgonia.Reshape(rows, l.n.Shape().Clone())
}
