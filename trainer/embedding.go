package trainer

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/plx-run/plx/trainer/layout"
)

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
	Dtype       tensor.Dtype // of the elements; the zero value is float32
	First       RowInit      // first values; the zero value is zeros
	Combine     Combine      // of gradients; the zero value follows the loss
	Partitioner Partitioning // may be cut in more or fewer partitions while it is trained
	lookups     []lookup
}

// lookup is one place in a graph where rows of a table come in.
type lookup struct {
	name string
	rows *gorgonia.Node // (n, width)
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
	e.lookups = append(e.lookups, lookup{name, rows})
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
	average := kind == Mean
	switch e.Combine {
	case ByLoss:
	case AddRows:
		average = false
	case AverageRows:
		average = true
	default:
		return layout.Variable{}, fmt.Errorf("embedding %q: combine is %d: want ByLoss, AddRows or AverageRows", e.Name, e.Combine)
	}
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
