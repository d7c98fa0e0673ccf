package trainer

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/embedding"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/graph"
	"github.com/plx-run/plx/trainer/growth"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/replica"
	"github.com/plx-run/plx/trainer/rewrite"
	"github.com/plx-run/plx/trainer/sparse"
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
	Variables  gorgonia.Nodes            // trained; each node has a name and a value (gorgonia.WithInit); see docs/sparse.md on those that become tables
	Embeddings []*Embedding              // tables whose rows are looked up
	States     []State                   // running averages, such as those of nn.BatchNorm
	Loss       *gorgonia.Node            // a scalar, float32 or float64
	LossKind   LossKind                  // how the virtual workers' losses are put together; zero: as a mean, but a loss that may be a sum over the rows is refused
	Metrics    map[string]*gorgonia.Node // by name: scalars, averaged over all virtual workers
	Fetches    map[string]*gorgonia.Node // by name: further values that a step or an evaluation returns
	// Frozen are leaves with a value that the loss depends on and that keep it. The chief
	// warns of such a leaf that is neither here nor in Variables.
	Frozen gorgonia.Nodes
	// Carried is recurrent state, by the name of an input: each row of the input gets
	// the value that the node had for that row at the end of the step before, and zeros
	// in the first step. So nothing need be fed. A feed that has the input sets it anew
	// for its step. An evaluation begins with zeros. Checkpoints hold the state, and
	// after a restart the worker that computes a row gets the state of that row; with a
	// --sync other than sync it begins anew then, because there is no moment that all
	// workers share.
	Carried map[string]*gorgonia.Node

	// ShardID and NumShards are inputs that the program does not feed: the trainer sets
	// them for each virtual worker, to its number from 0 and to the number of all. In an
	// evaluation they are 0 and 1. Each has a name and the shape (1), and is float32,
	// float64 or int64. nil means that the model does not need it.
	ShardID, NumShards *gorgonia.Node
}

// State is a variable that is not trained but follows a value of the graph:
// after a step it is Momentum times itself plus the rest times the average of
// Batch over all virtual workers.
//
//   - Variable *gorgonia.Node: with a name and a first value
//   - Batch *gorgonia.Node: of the same type and shape
//   - Momentum float64: in [0, 1)
type State = replica.State

// LossKind is what the loss of a batch is. It decides how gradients of several
// workers are put together.
type LossKind int

// A Mean over the rows makes workers average their gradients, a Sum over the
// rows makes them add.
const (
	unset LossKind = iota // the program does not say
	Mean
	Sum
)

func (k LossKind) String() string {
	switch k {
	case unset:
		return "unset"
	case Mean:
		return "mean"
	case Sum:
		return "sum"
	}
	return fmt.Sprintf("LossKind(%d)", int(k))
}

// check refuses a model that cannot be trained, before anything is compiled.
func (m Model) check() error {
	if m.LossKind < unset || m.LossKind > Sum {
		return fmt.Errorf("the loss kind is %v, want Mean or Sum", m.LossKind)
	}
	if i := slices.Index(m.Embeddings, nil); i >= 0 {
		return fmt.Errorf("embedding %d is nil", i)
	}
	for _, e := range m.Embeddings {
		if len(e.lookups) == 0 {
			return fmt.Errorf("embedding %q is never looked up: call Lookup, or leave it out", e.Name)
		}
	}
	return m.nodes().Check()
}

// checkMean refuses a loss of no kind that grows with the rows of the batch, or of which the
// graph does not tell whether it does. batch is the number of rows that the model is for.
func (m Model) checkMean(batch int) error {
	if m.LossKind != unset {
		return nil
	}
	loss, err := growth.Of(m.Loss, slices.Concat(m.Inputs, m.lookups()), batch)
	what := "adds up the rows of the batch"
	switch {
	case err != nil:
		return err
	case loss.Why != "":
		what = fmt.Sprintf("may add up rows of the batch: the graph does not tell, because of %s", loss.Why)
	case loss.Degree == 0:
		return nil
	}
	return config.HintError{
		Text: fmt.Sprintf("the loss %s, and Model.LossKind is not set: added or averaged over the workers, it trains differently", what),
		Help: "set LossKind: trainer.Mean if the loss does not grow with the number of rows, also if a constant divides it by that number; trainer.Sum if each part of it does",
	}
}

// kept are the variables that every worker holds whole: the trained ones, then
// those of the states.
func (m Model) kept() gorgonia.Nodes { return m.nodes().Kept() }

// lookups are the places where rows of tables come in, table by table.
func (m Model) lookups() gorgonia.Nodes { return m.nodes().LookupRows() }

// nodes returns m as package replica computes it.
func (m Model) nodes() replica.Model {
	n := replica.Model{
		Inputs: m.Inputs, Variables: m.Variables, States: m.States, Loss: m.Loss, Metrics: m.Metrics, Fetches: m.Fetches, Carried: m.Carried,
		Frozen: m.Frozen, Shard: [2]*gorgonia.Node{m.ShardID, m.NumShards},
	}
	for i, e := range m.Embeddings {
		for _, rows := range e.lookups {
			n.Lookups = append(n.Lookups, replica.Lookup{Table: e.Name, At: i, Rows: rows})
		}
	}
	return n
}

// with returns m with the nodes of another graph, and with more tables.
func (m Model) with(n rewrite.Made) Model {
	m.LossKind = cmp.Or(m.LossKind, Mean)
	m.Inputs, m.Variables, m.States, m.Loss, m.Metrics, m.Fetches, m.Carried = n.Inputs, n.Variables, n.States, n.Loss, n.Metrics, n.Fetches, n.Carried
	m.ShardID, m.NumShards = n.Shard[0], n.Shard[1]
	embeddings := make([]*Embedding, 0, len(m.Embeddings)+len(n.Tables))
	for _, e := range m.Embeddings {
		copied := *e
		embeddings = append(embeddings, copied.at(n.Lookups, len(embeddings)))
	}
	for _, v := range n.Tables {
		table := &Embedding{Name: v.Name(), Rows: v.Shape()[0], Width: tensor.Shape(v.Shape()[1:]).TotalSize(), Dtype: v.Dtype(), variable: v}
		embeddings = append(embeddings, table.at(n.Lookups, len(embeddings)))
	}
	m.Embeddings = embeddings
	return m
}

// first are the first values of tables that were variables, by table; nil for others.
// Only the chief's count.
func (m Model) first(chief bool) (all [][]byte, err error) {
	for _, e := range m.Embeddings {
		var values []byte
		if e.variable != nil && chief {
			values = memory.Aligned(e.Rows * e.Width * int(e.Dtype.Size()))
			if err = memory.Copy(values, e.variable.Value()); err != nil {
				return nil, fmt.Errorf("variable %q: first value: %w", e.Name, err)
			}
		}
		all = append(all, values)
	}
	return all, nil
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
	return graph.From(m.Loss.Graph(), graph.Marks{Inputs: slices.Concat(m.Inputs, m.nodes().ShardInputs(), m.lookups()), Variables: m.kept(), Loss: m.Loss})
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
//
//   - Step int: number of the step, counted from 0
//   - Loss float64: loss of the whole batch, of all workers together, before the step's update;
//     of an evaluation: of the feed
//   - Metrics map[string]float64: the model's, by name, averaged as the loss of a Mean model is
//   - Norm float64: global norm of the gradient before clipping, with ClipNorm or MeasureNorm
//     of [Config]; otherwise NaN
//   - Rate float64: learning rate of the step
//   - Late bool: the step was over before this worker was ready, and its feed had no effect
//     (--sync backup:B)
//   - Fetches map[string][]gorgonia.Value: the model's, by name, one value per virtual worker
//     of this worker; they belong to the caller
type Result = replica.Result

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
	Combine     Combine        // how virtual workers' gradients are put together; the zero value means as --combine-rows says, by default as for the loss
	Partitioner Partition      // allows more or fewer partitions during training; the zero value does not
	lookups     gorgonia.Nodes // inputs of the graph that take rows, each of shape (n, Width)
	variable    *gorgonia.Node // the variable of the program that became the table, with its first value; nil for a table of the program's own
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

// at makes rows of the i-th table, among all lookups, those of e.
func (e *Embedding) at(all []replica.Lookup, i int) *Embedding {
	e.lookups = nil
	for _, l := range all {
		if l.At == i {
			e.lookups = append(e.lookups, l.Rows)
		}
	}
	return e
}

func (e *Embedding) dtype() tensor.Dtype {
	if e.Dtype.Type == nil {
		return tensor.Float32
	}
	return e.Dtype
}

// declared describes the table to its shard holders.
func (e *Embedding) declared(kind LossKind, combine string) (layout.Variable, error) {
	if e.Combine < ByLoss || e.Combine > AverageRows {
		return layout.Variable{}, fmt.Errorf("embedding %q: combine is %d: want ByLoss, AddRows or AverageRows", e.Name, e.Combine)
	}
	shape, first := []int{e.Rows, e.Width}, e.First.init
	if e.variable != nil {
		shape, first = slices.Clone([]int(e.variable.Shape())), layout.RowInit{Kind: sparse.Given}
	}
	how := cmp.Or(e.Combine, map[string]Combine{"add": AddRows, "average": AverageRows}[combine])
	average := how == AverageRows || how == ByLoss && kind == Mean
	v := layout.Variable{
		Name: e.Name, Dtype: layout.Dtype(e.dtype().String()), Shape: shape,
		Sparse: &layout.Sparse{First: first, Average: average},
	}
	_, err := v.Elements()
	return v, err
}

// Partition says in how many partitions a table may be cut.
type Partition struct{ least int }

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
func Partitioner(least int) Partition { return Partition{max(least, 1)} }
