// Package growth follows how the values of a graph grow with the number of rows of a batch.
// A mean over the rows does not grow, a sum is twice as large if each row is there twice.
//
//	loss, err := growth.Of(model.Loss, model.Inputs, batch)
//	loss.Degree // 0: a mean, 1: a sum, -1: a sum that is divided by the square of the rows
//	loss.Why    // "+ of a sum over the rows and of a value that does not grow": why the degree is not known
//
// It follows the first axis of each input through the graph, as far as it knows the
// operations. A constant does not grow: the graph does not tell a factor of 1/64 that stands
// for the rows from one that does not. It runs nothing and changes nothing.
package growth

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/executor/vertex"
	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/gorgonia"
)

// Growth is how a value grows with the rows of a batch.
type Growth struct {
	Degree int    // a batch of k times the rows makes the elements k to the Degree as large
	Why    string // which operation makes the degree unknown; empty if it is known
	axes   uint64 // bit i: the value has the rows of the batch on axis i
}

// Of follows a vertex. inputs hold rows of the batch on their first axis, if its length is a
// multiple of batch; so do random tensors.
func Of(n *gorgonia.Node, inputs gorgonia.Nodes, batch int) (Growth, error) {
	w := walk{inputs: inputs, batch: batch, seen: map[*gorgonia.Node]Growth{}}
	return w.visit(n)
}

// walk visits each vertex once.
type walk struct {
	inputs gorgonia.Nodes
	batch  int
	seen   map[*gorgonia.Node]Growth
}

func (w walk) visit(n *gorgonia.Node) (Growth, error) {
	if g, ok := w.seen[n]; ok {
		return g, nil
	}
	below, err := vertex.Children(n)
	if err != nil {
		return Growth{}, err
	}
	c := call{n: n, below: below, batch: w.batch}
	for _, b := range below {
		g, err := w.visit(b)
		if err != nil {
			return Growth{}, err
		}
		c.in = append(c.in, g)
	}
	g, err := w.grow(c)
	w.seen[n] = g
	return g, err
}

// grow is the growth of a vertex whose inputs are known.
func (w walk) grow(c call) (g Growth, err error) {
	if len(c.in) == 0 {
		return w.leaf(c.n), nil
	}
	if i := slices.IndexFunc(c.in, func(g Growth) bool { return g.Why != "" }); i >= 0 {
		return c.in[i], nil
	}
	if !slices.ContainsFunc(c.in, func(g Growth) bool { return g != Growth{} }) {
		return Growth{}, nil // whatever the operation is
	}
	if rows, ok := ops.RowsOf(c.n.Op()); ok {
		return c.own(rows), nil
	}
	name, f, err := vertex.Fields(c.n.Op())
	if err != nil {
		return Growth{}, err
	}
	c.f = f
	if rule := rules[name]; rule != nil {
		return rule(c), nil
	}
	if name == "" && slices.Contains(keeping, fmt.Sprintf("%T", c.n.Op())) {
		return c.in[0], nil
	}
	return c.unknown(""), nil
}

// leaf is the growth of a vertex without inputs.
func (w walk) leaf(n *gorgonia.Node) Growth {
	_, constant := n.Op().(interface{ Value() gorgonia.Value })
	random := n.Op() != nil && !constant
	if s := n.Shape(); len(s) > 0 && s[0]%w.batch == 0 && (random || slices.Contains(w.inputs, n)) {
		return Growth{axes: 1}
	}
	return Growth{}
}
