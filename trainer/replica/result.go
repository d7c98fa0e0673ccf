package replica

import "gorgonia.org/gorgonia"

// Result is what a step or an evaluation gives.
type Result struct {
	// Step is the number of the step, counted from 0.
	Step int
	// Loss is the loss of the whole batch, of all workers together, before the
	// step's update. In an evaluation it is the loss of the feed.
	Loss float64
	// Metrics are the model's, by name, averaged as the loss of a Mean model is.
	Metrics map[string]float64
	// Norm is the global norm of the gradient before clipping, with Config.ClipNorm or
	// Config.MeasureNorm. Otherwise it is NaN.
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
