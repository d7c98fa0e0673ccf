package replica

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/tensor"
)

// Check refuses a feed that does not fit so many virtual workers. The indices of
// lookups are for package embedding to check.
func (r *Replica) Check(feed map[string]tensor.Tensor, vws int) error {
	known := map[string]bool{}
	for i, n := range r.model.Inputs {
		known[n.Name()] = true
		from := feed[n.Name()]
		if from == nil {
			return fmt.Errorf("input %q is not fed", n.Name())
		}
		if err := fits(r.inputs[i], from, vws); err != nil {
			return fmt.Errorf("input %q: %w", n.Name(), err)
		}
	}
	for _, l := range r.model.Lookups {
		known[l.Rows.Name()] = true
	}
	for name := range feed {
		if !known[name] {
			return fmt.Errorf("the model has no input %q", name)
		}
	}
	return nil
}

// fits checks that from holds the rows of so many virtual workers, or one value
// for all of them.
func fits(to *tensor.Dense, from tensor.Tensor, vws int) error {
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
		want[0] *= vws
	}
	if !from.Shape().Eq(want) {
		return fmt.Errorf("shape %v, the model wants %v", from.Shape(), want)
	}
	return nil
}

// Load copies one virtual worker's part of a checked feed to the inputs.
func (r *Replica) Load(feed map[string]tensor.Tensor, vw int) error {
	for i, n := range r.model.Inputs {
		if err := copyPart(r.inputs[i], feed[n.Name()], vw); err != nil {
			return fmt.Errorf("input %q: %w", n.Name(), err)
		}
	}
	return nil
}

// copyPart copies the i-th equal part of from's rows, or all of from if it has
// the shape of to.
func copyPart(to *tensor.Dense, from tensor.Tensor, i int) error {
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
	into, _ := memory.Raw(to) // the program has made it row-major
	rows, ok := memory.Raw(dense)
	if !ok {
		return fmt.Errorf("cannot read a tensor of %v", dense.Dtype())
	}
	copy(into, rows[i*len(into):])
	return nil
}

// Rows is the batch size of a feed for an evaluation.
func (g *Group) Rows(feed map[string]tensor.Tensor) (int, error) {
	m := g.replicas[0].model
	if len(m.Inputs) == 0 {
		return g.rows, nil
	}
	first := m.Inputs[0]
	from := feed[first.Name()]
	if from == nil {
		return 0, fmt.Errorf("input %q is not fed", first.Name())
	}
	if from.Shape().Dims() == 0 || from.Shape()[0] < 1 || first.Shape().Dims() == 0 {
		return 0, fmt.Errorf("input %q: shape %v has no rows", first.Name(), from.Shape())
	}
	each := max(1, first.Shape()[0]/g.rows) // rows of the input per row of the batch
	if from.Shape()[0]%each != 0 {
		return 0, fmt.Errorf("input %q: %d rows, want a multiple of %d", first.Name(), from.Shape()[0], each)
	}
	return from.Shape()[0] / each, nil
}
