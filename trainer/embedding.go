package trainer

import (
	"fmt"

	"github.com/plx-run/plx/trainer/owner"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Embedding is a table of rows that a model looks up by index. No worker holds
// it: the rows of a step are pulled from their owners, and only they travel
// back, duplicates added first. The optimiser updates touched rows alone; a
// row that no worker touched is left as it was, also where others decay.
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
	Combine     Combine
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

// ByLoss averages where the loss is a mean and adds where it is a sum, as for
// any other variable: the same as one process on the whole batch. AddRows and
// AverageRows do the same whatever the loss; an average divides by all
// virtual workers, also by those that did not touch the row.
const (
	ByLoss Combine = iota
	AddRows
	AverageRows
)

// RowInit says what a table's rows begin with. A row's values follow from the
// seed, the table's name and the row, not from who owns it.
type RowInit struct{ init owner.RowInit }

// UniformRows draws from [low, high).
func UniformRows(seed uint64, low, high float64) RowInit {
	return RowInit{owner.RowInit{Kind: "uniform", A: low, B: high, Seed: seed}}
}

// NormalRows draws from the normal distribution.
func NormalRows(seed uint64, mean, deviation float64) RowInit {
	return RowInit{owner.RowInit{Kind: "normal", A: mean, B: deviation, Seed: seed}}
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

// declared describes the table to its owners.
func (e *Embedding) declared(kind LossKind) (owner.Variable, error) {
	average := kind == Mean
	switch e.Combine {
	case ByLoss:
	case AddRows:
		average = false
	case AverageRows:
		average = true
	default:
		return owner.Variable{}, fmt.Errorf("embedding %q: combine is %d: want ByLoss, AddRows or AverageRows", e.Name, e.Combine)
	}
	v := owner.Variable{
		Name: e.Name, Dtype: owner.Dtype(e.dtype().String()), Shape: []int{e.Rows, e.Width},
		Sparse: &owner.Sparse{First: e.First.init, Average: average},
	}
	_, err := v.Elements()
	return v, err
}

// indices reads what a feed gives for a lookup: n indices of rows.
func (e *Embedding) indices(into []int64, from tensor.Tensor) error {
	n, err := copyIndices(into, from)
	if err != nil {
		return err
	}
	if n != len(into) {
		return fmt.Errorf("%d indices, the model wants %d", n, len(into))
	}
	for i, row := range into {
		if row < 0 || row >= int64(e.Rows) {
			return fmt.Errorf("index %d at position %d, the table %q has %d rows", row, i, e.Name, e.Rows)
		}
	}
	return nil
}

// copyIndices returns how many indices there are; it copies them where they
// fit.
func copyIndices(into []int64, from tensor.Tensor) (int, error) {
	if from.RequiresIterator() || from.DataOrder().IsColMajor() {
		return 0, fmt.Errorf("the indices do not lie in row-major order")
	}
	switch data := from.Data().(type) {
	case []int64:
		return narrow(into, data), nil
	case []int32:
		return narrow(into, data), nil
	case []int:
		return narrow(into, data), nil
	}
	return 0, fmt.Errorf("type %v: want int, int32 or int64", from.Dtype())
}

func narrow[T int | int32 | int64](into []int64, from []T) int {
	if len(into) == len(from) {
		for i, x := range from {
			into[i] = int64(x)
		}
	}
	return len(from)
}
