package nn

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/layout"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// collected holds the parts of the model that a Builder has added so far, and
// the first error. After an error, methods add nothing and return nil.
type collected struct {
	graph *gorgonia.ExprGraph
	batch int
	seed  uint64
	dtype tensor.Dtype
	names map[string]bool // names in use by layers, inputs, variables and embedding tables
	err   error           // first error of any method

	inputs, variables gorgonia.Nodes
	frozen            gorgonia.Nodes
	states            []trainer.State
	tables            []*trainer.Embedding // embedding tables passed to Lookup
	declared          []*trainer.Embedding // embedding tables made by Embedding
	loss              *Node
	kind              trainer.LossKind
	metrics, fetches  map[string]*Node
	carried           map[string]*Node // indexed by name of an input: the node whose value becomes the input in the next step
	shard             [2]shardInput    // the two values of Shard: the virtual worker's number, and the number of virtual workers
}

// shardInput is an input of shape (1) that the trainer sets, together with the
// scalar computed from it.
type shardInput struct{ input, scalar *Node }

// done checks the model for completeness and returns it, or the first error.
func (m *collected) done() (trainer.Model, error) {
	if m.loss == nil {
		m.keep(errors.New("the model has no loss: call CrossEntropy, MSE or Loss"))
	}
	for _, table := range m.declared {
		if !slices.Contains(m.tables, table) {
			m.keep(fmt.Errorf("embedding %q is never looked up: call Lookup, or leave it out", table.Name))
		}
	}
	if m.err != nil {
		return trainer.Model{}, m.err
	}
	return trainer.Model{Inputs: m.inputs, Variables: m.variables, Frozen: m.frozen, Embeddings: m.tables, States: m.states,
		Loss: m.loss, LossKind: m.kind, Metrics: m.metrics, Fetches: m.fetches, Carried: m.carried,
		ShardID: m.shard[0].input, NumShards: m.shard[1].input}, nil
}

// keep records err if no error was recorded before.
func (m *collected) keep(err error) {
	if m.err == nil {
		m.err = err
	}
}

// claim reserves a name for a layer, input or variable. It returns false if
// there is an error, such as a name already in use.
func (m *collected) claim(name string) bool {
	switch {
	case m.err != nil:
	case name == "":
		m.err = errors.New("a layer, input or variable has no name")
	case m.names[name]:
		m.err = fmt.Errorf("the name %q is used twice: layers, inputs and variables need distinct names", name)
	default:
		m.names[name] = true
	}
	return m.err == nil
}

// positive records an error if a size in shape is less than 1. It returns
// false after this error or an earlier one.
func (m *collected) positive(what string, shape ...int) bool {
	if len(shape) > 0 && slices.Min(shape) < 1 {
		m.keep(fmt.Errorf("%s: its sizes are (%s), want at least 1", what, sizes(shape)))
	}
	return m.err == nil
}

// shaped is like positive, and also records an error if the shape has more
// than layout.MaxElements elements.
func (m *collected) shaped(what string, shape []int) bool {
	if !m.positive(what, shape...) {
		return false
	}
	elements := 1
	for _, size := range shape {
		if elements > layout.MaxElements/size {
			m.err = fmt.Errorf("%s: its sizes are (%s), want at most %d elements", what, sizes(shape), layout.MaxElements)
			return false
		}
		elements *= size
	}
	return true
}

// ranked records an error unless the number of axes of x is between least and
// most. It returns false after this error or an earlier one.
func (m *collected) ranked(what string, x *Node, least, most int, want string) bool {
	switch {
	case m.err != nil:
	case x == nil:
		m.err = fmt.Errorf("%s: x is nil", what)
	case len(x.Shape()) < least || len(x.Shape()) > most:
		m.err = fmt.Errorf("%s: x is (%s), want %s", what, sizes(x.Shape()), want)
	}
	return m.err == nil
}

// apply calls f, which adds an operation to the graph, unless an error was
// recorded before. It prefixes an error of f with what.
func (m *collected) apply(what string, f func() (*Node, error)) *Node {
	if m.err != nil {
		return nil
	}
	n, err := f()
	if err != nil {
		m.err = fmt.Errorf("%s: %w", what, err)
		return nil
	}
	return n
}

func (m *collected) input(dtype tensor.Dtype, name string, shape []int) *Node {
	if !m.claim(name) || !m.shaped(fmt.Sprintf("input %q", name), shape) {
		return nil
	}
	n := gorgonia.NewTensor(m.graph, dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	m.inputs = append(m.inputs, n)
	return n
}

// shardScalar returns one of the two scalars of Shard. On the first call, it
// adds the input that the trainer sets.
func (m *collected) shardScalar(i int, name string) *Node {
	if m.shard[i].scalar == nil && m.claim(name) {
		input := gorgonia.NewVector(m.graph, m.dtype, gorgonia.WithShape(1), gorgonia.WithName(name))
		m.shard[i] = shardInput{input, m.apply(name, func() (*Node, error) { return gorgonia.Sum(input) })}
	}
	return m.shard[i].scalar
}

// variable adds a trainable variable.
func (m *collected) variable(name string, first Initial, shape []int) *Node {
	n := m.leaf(name, first, shape)
	if n != nil {
		m.variables = append(m.variables, n)
	}
	return n
}

// leaf adds a variable to the graph, but not to the list of variables that
// training changes.
func (m *collected) leaf(name string, first Initial, shape []int) *Node {
	if !m.claim(name) || !m.shaped(fmt.Sprintf("variable %q", name), shape) {
		return nil
	}
	if first.values == nil {
		first = Zeros()
	}
	return gorgonia.NewTensor(m.graph, m.dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name),
		gorgonia.WithInit(first.values(m.seed, name)))
}

// follow adds running averages, such as those of a batch norm, which the
// trainer updates.
func (m *collected) follow(states ...trainer.State) { m.states = append(m.states, states...) }

// declare records a table made by Embedding. done reports an error if the
// model never looks it up.
func (m *collected) declare(table *trainer.Embedding) *trainer.Embedding {
	m.declared = append(m.declared, table)
	return table
}

// lookup adds the lookup of n rows of a table. On the first lookup of a table,
// it adds the table to the model.
func (m *collected) lookup(table *trainer.Embedding, input string, n int) *Node {
	if table == nil {
		m.keep(fmt.Errorf("lookup %q: the table is nil", input))
	}
	if !m.claim(input) {
		return nil
	}
	if !slices.Contains(m.tables, table) {
		if !m.claim(table.Name) {
			return nil
		}
		m.tables = append(m.tables, table)
	}
	return m.apply(fmt.Sprintf("lookup %q", input), func() (*Node, error) { return table.Lookup(m.graph, input, n) })
}

func (m *collected) setLoss(loss *Node, kind trainer.LossKind) {
	switch {
	case m.err != nil:
	case loss == nil:
		m.err = errors.New("the loss is nil")
	case m.loss != nil:
		m.err = errors.New("the model has two losses: give their sum to Loss")
	}
	m.loss, m.kind = loss, kind
}

// report adds node n under a name to the map all, which is a field of m. what
// names the map in errors.
func (m *collected) report(what string, all map[string]*Node, name string, n *Node) {
	if n == nil {
		m.keep(fmt.Errorf("%s %q is nil", what, name))
	}
	if all[name] != nil {
		m.keep(fmt.Errorf("the model has two values for %s %q", what, name))
	}
	all[name] = n
}

// carry records that the input node `first` begins each step with the value
// that the node `last` had at the end of the previous step.
func (m *collected) carry(first, last *Node) {
	switch {
	case m.err != nil:
	case first == nil || !slices.Contains(m.inputs, first):
		m.err = errors.New("carry: the first node is no input of the model")
	default:
		m.report("carried input", m.carried, first.Name(), last)
	}
}

// same returns an error if x and y have different shapes.
func same(what string, x, y *Node) error {
	if x == nil || y == nil {
		return fmt.Errorf("%s: an input is nil", what)
	}
	if !slices.Equal(x.Shape(), y.Shape()) {
		return fmt.Errorf("%s: x is (%s) and y (%s), want one shape", what, sizes(x.Shape()), sizes(y.Shape()))
	}
	return nil
}

func sizes(shape []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", ", ")
}
