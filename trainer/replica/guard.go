package replica

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/wire"
	"gorgonia.org/tensor"
)

// NotFiniteError reports a loss, gradient or variable that is NaN or infinite.
type NotFiniteError string

func (e NotFiniteError) Error() string { return string(e) }

// Hint returns advice that usually helps.
func (NotFiniteError) Hint() string {
	return "lower the learning rate, set Config.ClipNorm, or look for the first bad gradient with --check-numerics"
}

// sampledBytes is the number of bytes of a gradient that a Guard checks even
// if it does not check everything. If the loss is not finite, usually all
// elements of each gradient are not finite either.
const sampledBytes = 16 << 10

// Guard checks the gradients of one run for NaN and infinity before the worker
// sends them.
type Guard struct {
	replica    *Replica
	who        string // the virtual worker (part of the batch) whose gradients the run computes, for error messages
	everything bool   // check every gradient completely; false means only the beginning of the first gradients
	sent       bool   // a variable's gradient has passed the check, so other machines may already update the variable
	broken     error  // error for the first bad gradient, after which none may be sent; nil if there was none
}

// Guard returns a Guard, which checks the gradients of the replica's next run
// for NaN and infinity. who names the virtual worker in errors. If everything
// is true, the Guard checks every gradient completely. If false, it checks
// only the beginning of the first gradients.
func (r *Replica) Guard(who string, everything bool) *Guard {
	return &Guard{replica: r, who: who, everything: everything}
}

// Passes checks gradient i and reports whether the worker may send it. After
// the first bad gradient Passes always returns false.
func (g *Guard) Passes(i int) bool {
	gradient := g.replica.gradients[i]
	switch {
	case g.broken != nil:
		return false
	case g.everything:
	case g.sent:
		return true
	default:
		gradient = gradient[:min(len(gradient), sampledBytes)]
	}
	if !finiteBytes(gradient, g.replica.dtype(i)) {
		g.broken = g.notFinite("the gradient of " + g.replica.NameOf(i))
		return false
	}
	g.sent = g.sent || i < len(g.replica.model.Variables)
	return true
}

// Verdict returns an error if the loss or a gradient of the run is NaN or
// infinite, and nil if not.
func (g *Guard) Verdict(loss float64) error {
	bad := !Finite(loss)
	switch {
	case bad && !g.sent:
		return g.diagnose(loss)
	case bad && g.broken == nil:
		return g.notFinite(fmt.Sprintf("the loss (%v)", loss))
	}
	return g.broken
}

// diagnose finds the variable or the gradient that made the loss NaN or
// infinite. It may read the variables because the worker has sent no gradient
// of this run, and so the variables are those from before the step.
func (g *Guard) diagnose(loss float64) error {
	r, what := g.replica, fmt.Sprintf("the loss (%v)", loss)
	for i, n := range r.model.Kept() {
		if memory, _ := RowMajor(r.kept[i]); !finiteBytes(memory, n.Dtype()) {
			return g.notFinite(fmt.Sprintf("%s; before the step variable %q", what, n.Name()))
		}
	}
	for i, gradient := range r.gradients {
		if !finiteBytes(gradient, r.dtype(i)) {
			return g.notFinite(fmt.Sprintf("%s and the gradient of %s", what, r.NameOf(i)))
		}
	}
	return g.notFinite(what)
}

func (g *Guard) notFinite(what string) error {
	return NotFiniteError(fmt.Sprintf("%s is not finite, computed by %s", what, g.who))
}

// Finite reports whether x is neither NaN nor infinite.
func Finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func finiteBytes(b []byte, dt tensor.Dtype) bool {
	if dt == tensor.Float32 {
		return finiteFloats(wire.Floats[float32](b))
	}
	return finiteFloats(wire.Floats[float64](b))
}

// finiteFloats reports whether x contains neither NaN nor infinity. It
// multiplies each number by zero, which gives zero only for finite numbers,
// and adds the products. That needs no branch in the loop.
func finiteFloats[T wire.Float](x []T) bool {
	var sum T
	for _, v := range x {
		sum += v * 0
	}
	return sum == 0
}
