package replica

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/wire"
	"gorgonia.org/tensor"
)

// NotFiniteError is the error of a number that is NaN or infinite.
type NotFiniteError string

func (e NotFiniteError) Error() string { return string(e) }

// Hint names what usually helps.
func (NotFiniteError) Hint() string {
	return "lower the learning rate, set Config.ClipNorm, or look for the first bad gradient with --check-numerics"
}

// glance is how many bytes of the first gradients a guard always looks at. As a
// rule a loss that is not finite spoils all of each gradient.
const glance = 16 << 10

// Guard looks at the gradients of one run before they are sent.
type Guard struct {
	replica    *Replica
	who        string // names who computes the run, for errors
	everything bool   // look at the whole of every gradient; false means parts of the first ones
	sent       bool   // a variable's gradient has passed, so variables may change from then on
	broken     error  // why no further gradient may be sent; nil means that none was bad
}

// Guard returns a guard of the next run, which is computed by who. It looks at
// every gradient if everything is set, else at parts of the first ones.
func (r *Replica) Guard(who string, everything bool) *Guard {
	return &Guard{replica: r, who: who, everything: everything}
}

// Passes reports whether gradient i may be sent. After the first that may not,
// none may.
func (g *Guard) Passes(i int) bool {
	gradient := g.replica.gradients[i]
	switch {
	case g.broken != nil:
		return false
	case g.everything:
	case g.sent:
		return true
	default:
		gradient = gradient[:min(len(gradient), glance)]
	}
	if !finiteBytes(gradient, g.replica.dtype(i)) {
		g.broken = g.notFinite("the gradient of " + g.replica.NameOf(i))
		return false
	}
	g.sent = g.sent || i < len(g.replica.model.Variables)
	return true
}

// Verdict is the error of a loss, or of a gradient, that is not finite.
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

// diagnose names the variable or the gradient behind a loss that is not finite.
// Nothing of the run was sent: variables are as they were before it.
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

// finiteFloats multiplies by zero: only NaN and Inf do not become it, and a sum
// of zeros has no branch.
func finiteFloats[T wire.Float](x []T) bool {
	var sum T
	for _, v := range x {
		sum += v * 0
	}
	return sum == 0
}
