// Package builder adds a model to a graph layer by layer, for examples whose
// models have many variables.
//
//	b := builder.New(g, seed, tensor.Float32)
//	x, y := b.Input("x", batch, 784), b.Input("y", batch, 10)
//	logits := b.Linear("out", x, 784, 10)
//	loss := b.Node(nn.CrossEntropy(logits, y))
//	return b.Done(trainer.Model{Loss: loss})
package builder

import (
	"slices"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Builder collects a model and keeps the first error.
type Builder struct {
	graph *gorgonia.ExprGraph
	seed  uint64
	dtype tensor.Dtype
	err   error // the first one

	inputs, variables gorgonia.Nodes
	states            []trainer.State
	tables            []*trainer.Embedding
}

// New returns a builder of an empty model. All first values follow from seed;
// inputs and variables have type dtype.
func New(g *gorgonia.ExprGraph, seed uint64, dtype tensor.Dtype) *Builder {
	return &Builder{graph: g, seed: seed, dtype: dtype}
}

// Done returns m with everything that was added to the builder, or the first
// error.
func (b *Builder) Done(m trainer.Model) (trainer.Model, error) {
	m.Inputs, m.Variables, m.States, m.Embeddings = b.inputs, b.variables, b.states, b.tables
	return m, b.err
}

// Node returns n and keeps err if it is the first error.
func (b *Builder) Node(n *gorgonia.Node, err error) *gorgonia.Node {
	b.Keep(err)
	return n
}

// Keep keeps err if it is the first error.
func (b *Builder) Keep(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Input adds an input of the model.
func (b *Builder) Input(name string, shape ...int) *gorgonia.Node {
	return b.InputOf(b.dtype, name, shape...)
}

// InputOf is Input of another type than the builder's.
func (b *Builder) InputOf(dtype tensor.Dtype, name string, shape ...int) *gorgonia.Node {
	n := gorgonia.NewTensor(b.graph, dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	b.inputs = append(b.inputs, n)
	return n
}

// Variable adds a variable of the model.
func (b *Builder) Variable(name string, first gorgonia.InitWFn, shape ...int) *gorgonia.Node {
	n := b.Leaf(name, first, shape...)
	b.variables = append(b.variables, n)
	return n
}

// State adds a running average of the model.
func (b *Builder) State(s trainer.State) { b.states = append(b.states, s) }

// Lookup finds n rows of a table, by the indices that the feed name holds.
func (b *Builder) Lookup(table *trainer.Embedding, name string, n int) *gorgonia.Node {
	if !slices.Contains(b.tables, table) {
		b.tables = append(b.tables, table)
	}
	return b.Node(table.Lookup(b.graph, name, n))
}

// Leaf is a leaf with a first value that is not differentiated by.
func (b *Builder) Leaf(name string, first gorgonia.InitWFn, shape ...int) *gorgonia.Node {
	return gorgonia.NewTensor(b.graph, b.dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithInit(first))
}

// Weights adds a matrix with Glorot's first values.
func (b *Builder) Weights(name string, in, out int) *gorgonia.Node {
	return b.Variable(name, trainer.GlorotUniform(b.seed, name), in, out)
}

// Linear adds a linear layer with the variables name.w and name.b.
func (b *Builder) Linear(name string, x *gorgonia.Node, in, out int) *gorgonia.Node {
	return b.Node(nn.Linear(x, b.Weights(name+".w", in, out), b.Variable(name+".b", trainer.Zeros(), out)))
}
