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

// Build builds the program's single-device model in the empty graph g. batch
// is the number of rows of a global batch that one virtual worker computes.
//
// The trainer calls Build once per replica (copy of the graph), and again for
// every batch size that is evaluated. Build must return the same model each
// time. Parallelize returns an error if the models of the workers differ.
type Build func(g *gorgonia.ExprGraph, batch int) (Model, error)

// Model lists the inputs, the variables, the loss and other important nodes of
// a graph.
type Model struct {
	Inputs     gorgonia.Nodes            // nodes that Feed sets at every step, under their names
	Variables  gorgonia.Nodes            // trained nodes, with a name and a value (gorgonia.WithInit); the trainer may turn some into embedding tables, see docs/sparse.md
	Embeddings []*Embedding              // tables of rows; each step uses only the rows that it looks up
	States     []State                   // variables that hold running averages, such as those of nn.BatchNorm
	Loss       *gorgonia.Node            // a scalar, float32 or float64
	LossKind   LossKind                  // says if the loss is a mean or a sum over rows; zero means Mean, and then Parallelize returns an error if the loss may be a sum
	Metrics    map[string]*gorgonia.Node // scalars by name; a step returns their averages over all virtual workers
	Fetches    map[string]*gorgonia.Node // other nodes by name; a step or an evaluation returns their values
	// Frozen lists leaves of the graph that have a value but are not trained,
	// although the loss depends on them. The chief (worker 0) logs a warning
	// for a leaf with a gradient that is listed neither in Frozen nor in
	// Variables.
	Frozen gorgonia.Nodes
	// Carried defines recurrent state. It maps the name of an input to the
	// node whose value becomes that input in the next step, row by row. In the
	// first step of training, and in an evaluation, the input is zero. The
	// program need not feed the input. If it does, that value replaces the
	// state for the step.
	//
	// Checkpoints contain the state. After a restart, the worker that computes
	// a row gets the state of that row. In modes other than sync, the workers
	// are not in the same step. Therefore checkpoints do not contain the state
	// in these modes, and a restart begins with zeros.
	Carried map[string]*gorgonia.Node

	// ShardID and NumShards are inputs that the trainer sets for each virtual
	// worker: ShardID to its number, counted from 0, and NumShards to the
	// number of virtual workers. In an evaluation they are 0 and 1. Both must
	// have a name, shape (1) and type float32, float64 or int64. nil means
	// that the model does not use the input.
	ShardID, NumShards *gorgonia.Node
}

// State is a variable that is not trained, but holds a running average of a
// node. After a step its value is Momentum*Variable + (1-Momentum)*mean, where
// mean is the average of Batch over all virtual workers.
//
//   - Variable *gorgonia.Node: variable with a name and an initial value
//   - Batch *gorgonia.Node: node whose value is averaged, of the same type and shape as Variable
//   - Momentum float64: weight of the old value, in [0, 1)
type State = replica.State

// LossKind says whether a model's loss is a mean or a sum over the rows of the
// batch. Accordingly, the trainer averages or adds the gradients of the
// virtual workers.
type LossKind int

// With Mean the trainer averages the gradients of all virtual workers. With
// Sum it adds them.
const (
	unset LossKind = iota // the program has not set LossKind
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

// check returns an error if the model cannot be trained. It runs before the
// graph is compiled.
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

// checkMean returns an error if the program has not set LossKind and the loss
// may grow with the number of rows in the batch. batch is the number of rows
// for which the model was built.
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

// kept returns the variables of which every worker has a full copy: first the
// trained ones, then those of States.
func (m Model) kept() gorgonia.Nodes { return m.nodes().Kept() }

// lookups returns the input nodes that hold the looked-up rows of the tables,
// in the order of the tables.
func (m Model) lookups() gorgonia.Nodes { return m.nodes().LookupRows() }

// nodes converts m to the type that package replica uses for the nodes of a
// graph.
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

// with returns m with its nodes replaced by the nodes of the rewritten graph
// n. It adds the embedding tables that the rewriting made from variables.
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

// first returns, for each table, the initial values if the table was a
// variable of the model, and nil if not. It returns values on the chief only,
// because all workers start with the chief's values.
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

// tables returns the descriptions of all tables for package embedding.
func (m Model) tables() (all []embedding.Table) {
	for i, e := range m.Embeddings {
		all = append(all, embedding.Table{
			Name: e.Name, Variable: len(m.kept()) + i, Rows: e.Rows, Width: e.Width, Dtype: e.dtype(),
		})
	}
	return all
}

// digest returns a SHA-256 of the model's graph: the names, operations, shapes
// and types of its nodes.
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
	return graph.From(m.Loss.Graph(), graph.Roles{Inputs: slices.Concat(m.Inputs, m.nodes().ShardInputs(), m.lookups()), Variables: m.kept(), Loss: m.Loss})
}

// Feed maps the name of each input of a model to its value, and the name of
// each embedding lookup to the indices of the rows. A call that takes a Feed
// copies the values, so the caller may reuse the tensors afterwards.
//
// If a worker computes n virtual workers, each value has n times as many rows
// as the input of the model: the rows of all its virtual workers, in their
// order. If a value has exactly the shape of the input instead, every virtual
// worker gets the whole value.
type Feed map[string]tensor.Tensor

// Result is the result of a training step or an evaluation.
//
//   - Step int: number of the step, counted from 0
//   - Loss float64: loss of the whole global batch, before the step's update; after an evaluation,
//     the loss of the evaluated rows
//   - Metrics map[string]float64: the model's metrics by name, averaged over all virtual workers
//   - Norm float64: global norm of the gradient before clipping; NaN unless ClipNorm or
//     MeasureNorm of [Config] is set
//   - Rate float64: learning rate of the step
//   - Late bool: with --sync backup:B, true if the step ended before this worker's gradients
//     arrived, so that its feed had no effect
//   - Fetches map[string][]gorgonia.Value: the model's fetches by name, with one value per virtual
//     worker of this worker; the caller owns the values
type Result = replica.Result

// Embedding is a table of rows that a model looks up by index. The rows are
// distributed over shard holders (parameter servers or workers). In each step
// a worker fetches the rows that it looks up from their shard holders. It
// sends back the gradients of these rows, and adds up the gradients of a row
// that it looked up several times. The optimiser updates only rows that some
// worker has looked up. All other rows keep their values, even with weight
// decay.
//
//	words := &trainer.Embedding{Name: "words", Rows: 100_000, Width: 128, First: trainer.UniformRows(seed, -0.1, 0.1)}
//	x, err := words.Lookup(g, "word", batch*length) // (batch*length, 128)
//	...
//	return trainer.Model{Embeddings: []*trainer.Embedding{words}, ...}, nil
//
// A Feed contains the indices under the lookup's name, as a tensor of int,
// int32 or int64 with one element per row.
type Embedding struct {
	Name        string
	Rows, Width int
	Dtype       tensor.Dtype   // type of the elements; the zero value means float32
	First       RowInit        // initial values of the rows; the zero value means zeros
	Combine     Combine        // whether gradients of several virtual workers are added or averaged; zero means that the flag --combine-rows decides
	Partitioner Partition      // lets the trainer choose the number of the table's partitions; zero means that it may not
	lookups     gorgonia.Nodes // graph inputs that hold looked-up rows, each of shape (n, Width)
	variable    *gorgonia.Node // variable that the trainer turned into this table; nil if the program created the table
}

// Combine says whether the gradients of a table row from several virtual
// workers are added or averaged.
type Combine int

// ByLoss averages the gradients of a row if the loss is a mean, and adds them
// if it is a sum. The result is the same as that of one process with the whole
// batch. AddRows always adds, and AverageRows always averages. An average
// divides by the number of all virtual workers, including those whose batch
// does not use the row.
const (
	ByLoss Combine = iota
	AddRows
	AverageRows
)

// RowInit describes the initial values of a table's rows. The values of a row
// depend only on the seed, the table's name and the row number, not on the
// task that holds the row.
type RowInit struct{ init layout.RowInit }

// UniformRows returns a RowInit that draws numbers uniformly from [low, high).
func UniformRows(seed uint64, low, high float64) RowInit {
	return RowInit{layout.RowInit{Kind: "uniform", A: low, B: high, Seed: seed}}
}

// NormalRows returns a RowInit that draws numbers from a normal distribution.
func NormalRows(seed uint64, mean, deviation float64) RowInit {
	return RowInit{layout.RowInit{Kind: "normal", A: mean, B: deviation, Seed: seed}}
}

// Lookup adds an input to the graph that holds n rows of the table, of shape
// (n, Width). The Feed contains the indices of the rows under name. A model
// may look up the same table several times, under different names.
func (e *Embedding) Lookup(g *gorgonia.ExprGraph, name string, n int) (*gorgonia.Node, error) {
	if name == "" || n < 1 || e.Rows < 1 || e.Width < 1 {
		return nil, fmt.Errorf("embedding %q: look up %d of %d rows of width %d as %q: want a name and positive numbers",
			e.Name, n, e.Rows, e.Width, name)
	}
	rows := gorgonia.NewMatrix(g, e.dtype(), gorgonia.WithName(name), gorgonia.WithShape(n, e.Width))
	e.lookups = append(e.lookups, rows)
	return rows, nil
}

// at stores in e.lookups those elements of the list all that look up rows of
// the table with index i. It returns e.
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

// declared returns the description of the table that all tasks share, with the
// table's shape, type and initial values.
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

// Partition holds the smallest number of partitions into which the trainer may
// divide a table. 0 means that the trainer does not divide it.
type Partition struct{ least int }

// Partitioner lets the trainer divide a table into least or more partitions.
// The flag --partitions sets their number. Without this flag, the trainer
// tries different numbers during training and keeps the fastest
// (--search-partitions). All tables with a Partitioner get the same number.
// Set least above 1 if the table is too large for few hosts; a value below 1
// means 1.
//
//	words := &trainer.Embedding{Name: "words", ..., Partitioner: trainer.Partitioner(1)}
//
// The number of partitions decides only which tasks hold the rows. The trained
// weights have the same bits with any number.
func Partitioner(least int) Partition { return Partition{max(least, 1)} }
