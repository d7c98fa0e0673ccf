// Package optimizer applies gradients to variables.
//
// The holder of a variable's shards keeps one State per shard:
//
//	s := optimizer.Settings{Rule: optimizer.Momentum, Momentum: 0.9, Decay: 1e-4}
//	state, err := optimizer.New[float32](s, len(value))
//	state.Apply(optimizer.Step{Number: step, Rate: rate, Scale: 1}, value, gradient)
//
// Every update is element by element, so cutting a variable into shards changes
// no bit of the result. Products are rounded before they are added (T(x*y)+z),
// so that no compiler fuses the two on some machines only.
//
// # Order
//
// An element x with the gradient g is updated in this order:
//
//	g = scale * g          Step.Scale, for clipping
//	g = g + decay * x      Settings.Decay: decay as part of the gradient, L2
//	x = x - rate*decay*x   instead of the line above, with Decoupled (Loshchilov and Hutter 2019)
//	the rule
//
// The rule Average follows statistics and not gradients. It has neither rate,
// scale nor decay, and its input is part of no norm.
//
// # Rows
//
// ApplyRows updates some rows of a table. The other rows keep their bits and
// their state: no momentum moves them and no decay shrinks them. Adam's
// correction counts the updates of the shard, not of the row. State is one or
// two numbers per element of the whole shard. All of it is zero before the
// first step, so a large shard takes memory from the system only for touched
// rows.
//
// # What it refuses
//
// It refuses settings that make no sense. It knows nothing of schedules and
// norms: the caller gives rate and scale with the step. It does not look for
// NaN.
package optimizer
