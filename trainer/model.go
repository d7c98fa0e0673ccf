package trainer

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/embedding"
	"github.com/plx-run/plx/trainer/graph"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/replica"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Build makes a complete single-device model in an empty graph. batch is the
// number of rows that one virtual worker takes of a batch. It is called once
// per replica and again for every batch size that is evaluated, and must build
// the same each time: every worker compares what it built with the others.
type Build func(g *gorgonia.ExprGraph, batch int) (Model, error)

// Model names what matters in a graph.
type Model struct {
	Inputs     gorgonia.Nodes            // fed at every step, under the node's name
	Variables  gorgonia.Nodes            // trained; each node has a name and a value (gorgonia.WithInit)
	Embeddings []*Embedding              // tables whose rows are looked up
	States     []State                   // running averages, such as those of nn.BatchNorm
	Loss       *gorgonia.Node            // a scalar, float32 or float64
	LossKind   LossKind                  // how the virtual workers' losses are put together
	Metrics    map[string]*gorgonia.Node // by name: scalars, averaged over all virtual workers
	Fetches    map[string]*gorgonia.Node // by name: further values that a step or an evaluation returns
}

// State is a variable that is not trained but follows a value of the graph:
// after a step it is Momentum times itself plus the rest times the average of
// Batch over all virtual workers.
type State = replica.State

// LossKind is what the loss of a batch is. It decides how gradients of several
// workers are put together.
type LossKind int

// A Mean over the rows makes workers average their gradients, a Sum over the
// rows makes them add.
const (
	Mean LossKind = iota
	Sum
)

func (k LossKind) String() string {
	switch k {
	case Mean:
		return "mean"
	case Sum:
		return "sum"
	}
	return fmt.Sprintf("LossKind(%d)", int(k))
}

// check refuses a model that cannot be trained, before anything is compiled.
func (m Model) check() error {
	if m.Loss == nil {
		return errors.New("the model has no loss: set Model.Loss")
	}
	if !m.Loss.IsScalar() {
		return fmt.Errorf("the loss has shape %v, want a scalar: reduce it with gorgonia.Mean or gorgonia.Sum", m.Loss.Shape())
	}
	if dt := m.Loss.Dtype(); dt != tensor.Float32 && dt != tensor.Float64 {
		return fmt.Errorf("the loss is %v, want float32 or float64", dt)
	}
	if m.LossKind != Mean && m.LossKind != Sum {
		return fmt.Errorf("the loss kind is %v, want Mean or Sum", m.LossKind)
	}
	if len(m.Variables)+len(m.Embeddings) == 0 {
		return errors.New("the model has no variables: set Model.Variables")
	}
	if i := slices.Index(m.Embeddings, nil); i >= 0 {
		return fmt.Errorf("embedding %d is nil", i)
	}
	if err := m.checkStates(); err != nil {
		return err
	}
	if err := m.checkNames(); err != nil {
		return err
	}
	for _, n := range m.kept() {
		if n.Value() == nil {
			return fmt.Errorf("variable %q has no value: give it one with gorgonia.WithInit", n.Name())
		}
	}
	for name, n := range m.Metrics {
		if n == nil || !n.IsScalar() {
			return fmt.Errorf("metric %q is no scalar", name)
		}
	}
	return m.checkReach()
}

// kept are the variables that every worker holds whole: the trained ones, then
// those of the states.
func (m Model) kept() gorgonia.Nodes { return m.nodes().Kept() }

// lookups are the places where rows of tables come in, table by table.
func (m Model) lookups() gorgonia.Nodes { return m.nodes().LookupRows() }

// nodes returns m as package replica computes it.
func (m Model) nodes() replica.Model {
	n := replica.Model{
		Inputs: m.Inputs, Variables: m.Variables, States: m.States, Loss: m.Loss, Metrics: m.Metrics, Fetches: m.Fetches,
	}
	for i, e := range m.Embeddings {
		for _, rows := range e.lookups {
			n.Lookups = append(n.Lookups, replica.Lookup{Table: e.Name, At: i, Rows: rows})
		}
	}
	return n
}

func (m Model) checkStates() error {
	for i, s := range m.States {
		switch {
		case s.Variable == nil || s.Batch == nil:
			return fmt.Errorf("state %d lacks its variable or its batch value", i)
		case s.Variable.Dtype() != s.Batch.Dtype() || !s.Variable.Shape().Eq(s.Batch.Shape()):
			return fmt.Errorf("state %q is %v of shape %v, its batch value %v of shape %v", s.Variable.Name(),
				s.Variable.Dtype(), s.Variable.Shape(), s.Batch.Dtype(), s.Batch.Shape())
		case !(s.Momentum >= 0 && s.Momentum < 1):
			return fmt.Errorf("state %q: momentum is %v, want at least 0 and less than 1", s.Variable.Name(), s.Momentum)
		}
	}
	return nil
}

func (m Model) checkNames() error {
	seen := map[string]bool{}
	for i, n := range slices.Concat(m.Inputs, m.kept(), m.lookups()) {
		switch {
		case n == nil:
			return fmt.Errorf("input or variable %d is nil", i)
		case !n.IsVar():
			return fmt.Errorf("%q is computed, so it is neither an input nor a variable", n.Name())
		case n.Name() == "" || seen[n.Name()]:
			return fmt.Errorf("%q: inputs and variables need distinct names (gorgonia.WithName)", n.Name())
		}
		seen[n.Name()] = true
	}
	for i, e := range m.Embeddings {
		switch {
		case len(e.lookups) == 0:
			return fmt.Errorf("embedding %d is never looked up", i)
		case e.Name == "" || seen[e.Name]:
			return fmt.Errorf("embedding %q: variables need distinct names", e.Name)
		}
		seen[e.Name] = true
	}
	return nil
}

// checkReach wants every variable to have a gradient, and everything that the
// loss needs to have a value.
func (m Model) checkReach() error {
	reached, fed := map[int64]bool{}, slices.Concat(m.Inputs, m.lookups())
	var unset []string
	todo := []*gorgonia.Node{m.Loss}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if reached[n.ID()] {
			continue
		}
		reached[n.ID()] = true
		if n.IsVar() && n.Value() == nil && !slices.Contains(fed, n) {
			unset = append(unset, fmt.Sprintf("%q", n.Name()))
		}
		for below := m.Loss.Graph().From(n.ID()); below.Next(); {
			todo = append(todo, below.Node().(*gorgonia.Node))
		}
	}
	for _, n := range slices.Concat(m.Variables, m.lookups()) {
		if !reached[n.ID()] {
			return fmt.Errorf("variable %q gets no gradient: the loss does not depend on it", n.Name())
		}
	}
	if len(unset) > 0 {
		return fmt.Errorf("the loss needs %s: list it in Model.Inputs or give it a value", strings.Join(unset, ", "))
	}
	return nil
}

// tables describes the tables to package embedding.
func (m Model) tables() (all []embedding.Table) {
	for i, e := range m.Embeddings {
		all = append(all, embedding.Table{
			Name: e.Name, Variable: len(m.kept()) + i, Rows: e.Rows, Width: e.Width, Dtype: e.dtype(),
		})
	}
	return all
}

// digest stands for the model's graph: names, operations, shapes and types.
func (m Model) digest() (string, error) {
	described, err := m.describe()
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	if err := described.WriteJSON(&text); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(text.Bytes())), nil
}

func (m Model) describe() (graph.Graph, error) {
	return graph.From(m.Loss.Graph(), graph.Marks{Inputs: slices.Concat(m.Inputs, m.lookups()), Variables: m.kept(), Loss: m.Loss})
}

// Feed holds a value for every input of a model, by name, and the indices of
// every lookup. Calls copy it: the caller may use its tensors again when the call
// returns.
//
// A worker that computes n virtual workers feeds the rows of all of them one
// after the other: n times as many rows as the model's input has. Each virtual
// worker gets the whole of a value that has exactly the input's shape.
type Feed map[string]tensor.Tensor

// Result is what a step or an evaluation gives.
type Result struct {
	// Step is the number of the step, counted from 0.
	Step int
	// Loss is the loss of the whole batch, of all workers together, before the
	// step's update. In an evaluation it is the loss of the feed.
	Loss float64
	// Metrics are the model's, by name, averaged as the loss of a Mean model is.
	Metrics map[string]float64
	// Norm is the global norm of the gradient before clipping, with ClipNorm or
	// MeasureNorm. Otherwise it is NaN.
	Norm float64
	// Rate is the learning rate of the step.
	Rate float64
	// Late is set if the step was over before this worker was ready: its feed had
	// no effect (--sync backup:B).
	Late bool
	// Fetches are the model's, by name, computed from this worker's feed: one value
	// per virtual worker of this worker. They belong to the caller.
	Fetches map[string][]gorgonia.Value
}

// Embedding is a table of rows that a model looks up by index. No worker holds
// all of it: a worker pulls the rows of a step from their shard holders, and sends
// back the gradients of these rows, duplicates added first. The optimiser updates
// touched rows alone. A row that no worker touched stays as it was, even with weight
// decay.
//
//	words := &trainer.Embedding{Name: "words", Rows: 100_000, Width: 128, First: trainer.UniformRows(seed, -0.1, 0.1)}
//	x, err := words.Lookup(g, "word", batch*length) // (batch*length, 128)
//	...
//	return trainer.Model{Embeddings: []*trainer.Embedding{words}, ...}, nil
//
// A feed gives the indices under the lookup's name, a tensor of int, int32 or
// int64 with one element per row.
type Embedding struct {
	Name        string
	Rows, Width int
	Dtype       tensor.Dtype   // type of the elements; the zero value means float32
	First       RowInit        // first values of the rows; the zero value means zeros
	Combine     Combine        // how virtual workers' gradients are put together; the zero value means as for the loss
	Partitioner Partitioning   // allows more or fewer partitions during training; the zero value does not
	lookups     gorgonia.Nodes // inputs of the graph that take rows, each of shape (n, Width)
}

// Combine says how gradients of a table's rows from several virtual workers
// are put together.
type Combine int

// ByLoss averages if the loss is a mean and adds if it is a sum, as for any other
// variable: the result is that of one process on the whole batch. AddRows adds and
// AverageRows averages, whatever the loss. An average divides by all virtual
// workers, also by those that did not touch the row.
const (
	ByLoss Combine = iota
	AddRows
	AverageRows
)

// RowInit says what a table's rows begin with. A row's values follow from the
// seed, the table's name and the row, whichever task holds it.
type RowInit struct{ init layout.RowInit }

// UniformRows draws from [low, high).
func UniformRows(seed uint64, low, high float64) RowInit {
	return RowInit{layout.RowInit{Kind: "uniform", A: low, B: high, Seed: seed}}
}

// NormalRows draws from the normal distribution.
func NormalRows(seed uint64, mean, deviation float64) RowInit {
	return RowInit{layout.RowInit{Kind: "normal", A: mean, B: deviation, Seed: seed}}
}

// Lookup adds n rows of the table to the graph, of shape (n, Width). name is
// the feed's name for their indices; a table may be looked up several times
// under different names.
func (e *Embedding) Lookup(g *gorgonia.ExprGraph, name string, n int) (*gorgonia.Node, error) {
	if name == "" || n < 1 || e.Rows < 1 || e.Width < 1 {
		return nil, fmt.Errorf("embedding %q: look up %d of %d rows of width %d as %q: want a name and positive numbers",
			e.Name, n, e.Rows, e.Width, name)
	}
	rows := gorgonia.NewMatrix(g, e.dtype(), gorgonia.WithName(name), gorgonia.WithShape(n, e.Width))
	e.lookups = append(e.lookups, rows)
	return rows, nil
}

func (e *Embedding) dtype() tensor.Dtype {
	if e.Dtype.Type == nil {
		return tensor.Float32
	}
	return e.Dtype
}

// declared describes the table to its shard holders.
func (e *Embedding) declared(kind LossKind) (layout.Variable, error) {
	if e.Combine < ByLoss || e.Combine > AverageRows {
		return layout.Variable{}, fmt.Errorf("embedding %q: combine is %d: want ByLoss, AddRows or AverageRows", e.Name, e.Combine)
	}
	average := e.Combine == AverageRows || e.Combine == ByLoss && kind == Mean
	v := layout.Variable{
		Name: e.Name, Dtype: layout.Dtype(e.dtype().String()), Shape: []int{e.Rows, e.Width},
		Sparse: &layout.Sparse{First: e.First.init, Average: average},
	}
	_, err := v.Elements()
	return v, err
}

// Partitioning says in how many partitions a table may be cut.
type Partitioning struct{ least int }

// Partitioner lets the trainer cut a table in any number of partitions from
// least on: as many as --partitions says, or else as many as make steps
// fastest, which it finds out while it trains (--search-partitions). All
// tables with a partitioner are cut in the same number. Least is for tables
// that are too large for fewer hosts; below 1 it is 1.
//
//	words := &trainer.Embedding{Name: "words", ..., Partitioner: trainer.Partitioner(1)}
//
// How a table is cut changes where its rows lie and nothing else: the weights
// are the same bits.
func Partitioner(least int) Partitioning { return Partitioning{max(least, 1)} }
