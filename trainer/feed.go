package trainer

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Feed holds a value for every input of a model, by name. It is copied; the
// caller may use its tensors again when the call returns.
type Feed map[string]tensor.Tensor

// Result is what a step or an evaluation gives.
type Result struct {
	// Loss is that of the whole batch, all workers together, before the
	// step's update; of what was fed, in an evaluation.
	Loss float64
	// Fetches are the model's, computed from what this worker fed. They
	// belong to the caller.
	Fetches map[string]gorgonia.Value
}

// feed copies a feed to the inputs.
func (t *tape) feed(feed Feed) error {
	for name := range feed {
		if t.inputs[name] == nil {
			return fmt.Errorf("the model has no input %q", name)
		}
	}
	for _, n := range t.model.Inputs {
		from, ok := feed[n.Name()]
		if !ok || from == nil {
			return fmt.Errorf("input %q is not fed", n.Name())
		}
		if err := copyInput(t.inputs[n.Name()], from); err != nil {
			return fmt.Errorf("input %q: %w", n.Name(), err)
		}
	}
	return nil
}

func copyInput(to *tensor.Dense, from tensor.Tensor) error {
	if from.Dtype() != to.Dtype() {
		return fmt.Errorf("type %v, the model wants %v", from.Dtype(), to.Dtype())
	}
	if !from.Shape().Eq(to.Shape()) {
		return fmt.Errorf("shape %v, the model wants %v", from.Shape(), to.Shape())
	}
	if from.DataOrder().IsColMajor() {
		return fmt.Errorf("column-major, the model wants row-major")
	}
	return tensor.Copy(to, from)
}

// rows is the batch size of a feed for an evaluation.
func (m Model) rows(feed Feed) (int, error) {
	if len(m.Inputs) == 0 {
		return 0, fmt.Errorf("the model has no inputs")
	}
	first := m.Inputs[0].Name()
	from := feed[first]
	if from == nil {
		return 0, fmt.Errorf("input %q is not fed", first)
	}
	if from.Shape().Dims() == 0 || from.Shape()[0] < 1 {
		return 0, fmt.Errorf("input %q: shape %v has no rows", first, from.Shape())
	}
	return from.Shape()[0], nil
}
