package trainer

import (
	"fmt"
	"reflect"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Feed holds a value for every input of a model, by name, and the indices of
// every lookup. It is copied; the caller may use its tensors again when the
// call returns.
//
// A worker that computes n virtual workers feeds the rows of all of them one
// after the other: n times as many rows as the model's input has. What has
// exactly the input's shape is given to each of them.
type Feed map[string]tensor.Tensor

// Result is what a step or an evaluation gives.
type Result struct {
	// Step is the number of the step, the first one's is 0.
	Step int
	// Loss is that of the whole batch, all workers together, before the
	// step's update; of what was fed, in an evaluation.
	Loss float64
	// Metrics are the model's, averaged as the loss of a Mean model is.
	Metrics map[string]float64
	// Norm is the global norm of the gradient before clipping where it was
	// asked for, with ClipNorm or MeasureNorm; NaN otherwise.
	Norm float64
	// Rate is the learning rate of the step.
	Rate float64
	// Late says that the step was over before this worker was ready, so what
	// it fed was dropped (--sync backup:B).
	Late bool
	// Fetches are the model's, computed from what this worker fed, one per
	// virtual worker of it. They belong to the caller.
	Fetches map[string][]gorgonia.Value
}

// check refuses a feed that does not fit, before anything is computed. It is
// meant for shards virtual workers.
func (l *lane) check(feed Feed, shards int) error {
	known := map[string]bool{}
	for i, n := range l.model.Inputs {
		known[n.Name()] = true
		from := feed[n.Name()]
		if from == nil {
			return fmt.Errorf("input %q is not fed", n.Name())
		}
		if err := fits(l.inputs[i], from, shards); err != nil {
			return fmt.Errorf("input %q: %w", n.Name(), err)
		}
	}
	if err := l.checkLookups(feed, shards); err != nil {
		return err
	}
	for _, to := range l.lookups {
		known[to.name] = true
	}
	for name := range feed {
		if !known[name] {
			return fmt.Errorf("the model has no input %q", name)
		}
	}
	return nil
}

// checkLookups refuses indices that do not fit.
func (l *lane) checkLookups(feed Feed, shards int) error {
	for _, to := range l.lookups {
		from := feed[to.name]
		if from == nil {
			return fmt.Errorf("the indices of lookup %q are not fed", to.name)
		}
		if err := l.model.Embeddings[to.table].indices(make([]int64, shards*len(to.index)), from); err != nil {
			return fmt.Errorf("lookup %q: %w", to.name, err)
		}
	}
	return nil
}

// fits says whether from holds the rows of so many shards, or one value for
// all of them.
func fits(to *tensor.Dense, from tensor.Tensor, shards int) error {
	if from.Dtype() != to.Dtype() {
		return fmt.Errorf("type %v, the model wants %v", from.Dtype(), to.Dtype())
	}
	if from.DataOrder().IsColMajor() {
		return fmt.Errorf("column-major, the model wants row-major")
	}
	want := to.Shape().Clone()
	if from.Shape().Eq(want) {
		return nil
	}
	if len(want) > 0 {
		want[0] *= shards
	}
	if !from.Shape().Eq(want) {
		return fmt.Errorf("shape %v, the model wants %v", from.Shape(), want)
	}
	return nil
}

// load copies one shard of a checked feed, and the rows that were pulled for
// it, to the inputs.
func (l *lane) load(feed Feed, shard int, tables []table) error {
	for _, t := range tables {
		t.load(l, shard)
	}
	for i, n := range l.model.Inputs {
		if err := copyShard(l.inputs[i], feed[n.Name()], shard); err != nil {
			return fmt.Errorf("input %q: %w", n.Name(), err)
		}
	}
	return nil
}

// copyShard copies the shard-th equal part of from's rows, or all of from
// where it has the shape of to.
func copyShard(to *tensor.Dense, from tensor.Tensor, shard int) error {
	if from.Shape().Eq(to.Shape()) {
		return tensor.Copy(to, from)
	}
	dense, ok := from.(*tensor.Dense)
	if !ok {
		return fmt.Errorf("cannot read a %T", from)
	}
	if dense.RequiresIterator() {
		whole, ok := dense.Materialize().(*tensor.Dense)
		if !ok {
			return fmt.Errorf("cannot read a view of shape %v", dense.Shape())
		}
		dense = whole
	}
	if into, ok := rowMajor(to); ok {
		rows, _ := rowMajor(dense) // as plain as into, and of its type
		copy(into, rows[shard*len(into):])
		return nil
	}
	into := reflect.ValueOf(to.Data())
	n := into.Len()
	reflect.Copy(into, reflect.ValueOf(dense.Data()).Slice(shard*n, (shard+1)*n))
	return nil
}

// rows is the batch size of a feed for an evaluation. batch is that of m.
func (m Model) rows(feed Feed, batch int) (int, error) {
	if len(m.Inputs) == 0 {
		return batch, nil
	}
	first := m.Inputs[0]
	from := feed[first.Name()]
	if from == nil {
		return 0, fmt.Errorf("input %q is not fed", first.Name())
	}
	if from.Shape().Dims() == 0 || from.Shape()[0] < 1 || first.Shape().Dims() == 0 {
		return 0, fmt.Errorf("input %q: shape %v has no rows", first.Name(), from.Shape())
	}
	each := max(1, first.Shape()[0]/batch) // rows of the input per row of the batch
	if from.Shape()[0]%each != 0 {
		return 0, fmt.Errorf("input %q: %d rows, want a multiple of %d", first.Name(), from.Shape()[0], each)
	}
	return from.Shape()[0] / each, nil
}
