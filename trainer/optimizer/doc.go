// Package optimizer applies gradients to variables.
//
// The shard holder (a task that stores a variable or a part of it) has one
// State per shard:
//
//	s := optimizer.Settings{Rule: optimizer.Momentum, Momentum: 0.9, Decay: 1e-4}
//	state, err := optimizer.New[float32](s, len(value))
//	state.Apply(optimizer.Step{Number: step, Rate: rate, Scale: 1}, value, gradient)
//
// Every element is updated independently, so the result has the same bits
// however a variable is cut into shards. Products are rounded before they are
// added (T(x*y)+z). Otherwise compilers would fuse both operations on some
// machines, with other results.
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
// The rule Average updates running statistics, not parameters. It ignores
// rate, scale and decay, and its input is not part of the gradient norm.
//
// # Rows
//
// ApplyRows updates some rows of a table. All other rows keep their values and
// their state: momentum does not move them, and decay does not shrink them.
// Adam's bias correction counts the updates of the whole shard, not of a row.
// The state has one or two numbers per element of the shard, all of them zero
// before the first step. So a large shard takes memory from the operating
// system only for rows that were updated.
//
// # Limits
//
// Settings that make no sense are an error. The package has no learning rate
// schedule and computes no norm: the caller passes rate and scale in Step. It
// does not check for NaN.
package optimizer
