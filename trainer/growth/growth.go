// Package growth computes how the values of a graph grow with the number of
// rows in a batch. If each row occurs twice, a mean over the rows stays the
// same, and a sum over the rows is twice as large.
//
//	loss, err := growth.Of(model.Loss, model.Inputs, batch)
//	loss.Degree // 0: a mean, 1: a sum, -1: a sum that is divided by the square of the rows
//	loss.Why    // "+ of a sum over the rows and of a value that does not grow": why the degree is not known
//
// The package follows the first axis of each input through the graph, as far
// as it knows the operations. It assumes that a constant does not depend on
// the number of rows: it cannot tell a factor 1/64 that stands for 64 rows
// from any other constant. It does not run or change the graph.
package growth

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/executor/vertex"
	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/gorgonia"
)

// Growth describes how a value of a graph grows with the number of rows in a
// batch.
type Growth struct {
	Degree int    // with k times the rows, each element is k^Degree times as large
	Why    string // operation for which the degree is unknown, and the reason; empty if the degree is known
	axes   uint64 // bit i is set if the rows of the batch lie along axis i of the value
}

// Of returns the Growth of the value of node n, which says how the value grows
// with the rows of the batch. It assumes that the first axis of an input or a
// random tensor has the rows of the batch, if its length is a multiple of
// batch.
func Of(n *gorgonia.Node, inputs gorgonia.Nodes, batch int) (Growth, error) {
	w := walk{inputs: inputs, batch: batch, seen: map[*gorgonia.Node]Growth{}}
	return w.visit(n)
}

// walk is a traversal of the graph that visits each node once.
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

// grow returns how the value of a node grows with the number of rows in the
// batch, given the growth of its inputs.
func (w walk) grow(c call) (g Growth, err error) {
	if len(c.in) == 0 {
		return w.leaf(c.n), nil
	}
	if i := slices.IndexFunc(c.in, func(g Growth) bool { return g.Why != "" }); i >= 0 {
		return c.in[i], nil
	}
	if !slices.ContainsFunc(c.in, func(g Growth) bool { return g != Growth{} }) {
		return Growth{}, nil // an operation on values that do not grow gives a value that does not grow
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

// leaf returns how the value of a node without inputs grows with the number of
// rows in the batch. Such a node is an input of the graph, a constant, a
// variable or a random tensor.
func (w walk) leaf(n *gorgonia.Node) Growth {
	_, constant := n.Op().(interface{ Value() gorgonia.Value })
	random := n.Op() != nil && !constant
	if s := n.Shape(); len(s) > 0 && s[0]%w.batch == 0 && (random || slices.Contains(w.inputs, n)) {
		return Growth{axes: 1}
	}
	return Growth{}
}
