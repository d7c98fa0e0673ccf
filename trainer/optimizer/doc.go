// Package optimizer applies gradients to variables.
//
// The owner of a variable keeps one State per piece of it:
//
//	s := optimizer.Settings{Rule: optimizer.Momentum, Momentum: 0.9, Decay: 1e-4}
//	state, err := optimizer.New[float32](s, len(value))
//	state.Apply(optimizer.Step{Number: step, Rate: rate, Scale: 1}, value, gradient)
//
// Every update is element by element, so a variable may be cut into pieces
// anywhere without changing a bit of the result. Products are rounded before
// they are added (T(x*y)+z), which keeps compilers from fusing the two on
// some machines and not on others.
//
// # Order
//
// What happens to the element x with the gradient g:
//
//	g = scale * g          Step.Scale, for clipping
//	g = g + decay * x      Settings.Decay: decay as part of the gradient, L2
//	x = x - rate*decay*x   instead of that with Decoupled (Loshchilov and Hutter 2019)
//	the rule
//
// The rule Average follows statistics and not gradients: it has neither rate,
// scale nor decay, and its input belongs in no norm.
//
// # Rows
//
// ApplyRows updates some rows of a table. The others keep their bits, and so
// does their state: no momentum moves them, no decay shrinks them, and Adam's
// correction counts the updates of the piece, not of the row. State is one or
// two numbers per element of the whole piece. All of it is zero before the
// first step, so a large piece takes memory from the system only where rows
// were touched.
//
// # What it refuses
//
// Settings that make no sense. It knows nothing of schedules and norms: rate
// and scale are given with the step. It does not look for NaN.
package optimizer
