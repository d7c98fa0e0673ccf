package replica

import "gorgonia.org/gorgonia"

// Result is the outcome of a training step or an evaluation.
type Result struct {
	// Step is the number of the step, counted from 0.
	Step int
	// Loss is the loss of the whole batch of all workers, before the step's
	// update of the variables. In an evaluation it is the loss of the
	// evaluated batch.
	Loss float64
	// Metrics are the values of the model's metrics, by name. They are
	// averaged over the virtual workers (parts of the batch).
	Metrics map[string]float64
	// Norm is the global norm of the gradient before clipping. It is NaN
	// unless Config.ClipNorm or Config.MeasureNorm is set.
	Norm float64
	// Rate is the learning rate of the step.
	Rate float64
	// Late is true if the step ended before this worker had sent its
	// gradients. The worker's part of the batch then had no effect on the
	// variables (--sync backup:B).
	Late bool
	// Fetches are the values of the model's fetches, by name, computed from
	// this worker's feed. There is one value for each virtual worker of this
	// worker. The caller may keep and change them.
	Fetches map[string][]gorgonia.Value
}
