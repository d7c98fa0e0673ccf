package trainer

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

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
	// Loss is that of the whole batch, of all workers together, before the
	// step's update. In an evaluation it is that of the feed.
	Loss float64
	// Metrics are the model's, averaged as the loss of a Mean model is.
	Metrics map[string]float64
	// Norm is the global norm of the gradient before clipping, with ClipNorm or
	// MeasureNorm. Otherwise it is NaN.
	Norm float64
	// Rate is the learning rate of the step.
	Rate float64
	// Late is set if the step was over before this worker was ready: its feed had
	// no effect (--sync backup:B).
	Late bool
	// Fetches are the model's, computed from this worker's feed: one value per
	// virtual worker of this worker. They belong to the caller.
	Fetches map[string][]gorgonia.Value
}
