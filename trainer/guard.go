package trainer

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/wire"
	"gorgonia.org/tensor"
)

// notFinite is the error of a number that is NaN or infinite.
func (r *Replica) notFinite(what string, leaf int) error {
	return notFiniteError{fmt.Sprintf("%s is not finite, computed by virtual worker %d of %s", what, leaf, r.job.contract.Task)}
}

type notFiniteError struct{ text string }

func (e notFiniteError) Error() string { return e.text }

// Hint says what usually helps.
func (notFiniteError) Hint() string {
	return "lower the learning rate, clip with trainer.ClipNorm, or look for the first bad gradient with --check-numerics"
}

// glance is how much of the first gradients is always looked at, in bytes. A
// loss that is not finite spoils them, and all of each, as a rule.
const glance = 16 << 10

// watch looks at the gradients of a virtual worker before they are sent.
type watch struct {
	r      *Replica
	l      *lane
	leaf   int
	sent   bool // a gradient: from then on variables may change
	broken error
}

// passes reports whether gradient i may be sent. After one that may not, none
// may.
func (w *watch) passes(i int) bool {
	gradient := w.l.gradients[i]
	switch {
	case w.broken != nil:
		return false
	case w.r.job.config.checkNumerics:
	case w.sent:
		return true
	default:
		gradient = gradient[:min(len(gradient), glance)]
	}
	if !finiteBytes(gradient, w.l.dtype(i)) {
		w.broken = w.r.notFinite("the gradient of "+w.l.differentiated(i), w.leaf)
		return false
	}
	w.sent = w.sent || i < len(w.l.model.Variables)
	return true
}

// verdict is the error of a loss, or a gradient, that is not finite.
func (w *watch) verdict(loss float64) error {
	bad := math.IsNaN(loss) || math.IsInf(loss, 0)
	switch {
	case bad && !w.sent:
		return w.r.diagnose(w.l, w.leaf, loss)
	case bad && w.broken == nil:
		return w.r.notFinite(fmt.Sprintf("the loss (%v)", loss), w.leaf)
	}
	return w.broken
}

// diagnose names the variable behind a loss that is not finite, where one of
// them already is not, or a gradient. Nothing of the virtual worker was sent:
// what was may be overwritten meanwhile.
func (r *Replica) diagnose(l *lane, leaf int, loss float64) error {
	what := fmt.Sprintf("the loss (%v)", loss)
	for i, memory := range r.memory {
		if v := r.declared.Variables[i]; !finiteBytes(memory, l.kept(i)) {
			return r.notFinite(fmt.Sprintf("%s; before the step variable %q", what, v.Name), leaf)
		}
	}
	for i, gradient := range l.gradients {
		if !finiteBytes(gradient, l.dtype(i)) {
			return r.notFinite(fmt.Sprintf("%s and the gradient of %s", what, l.differentiated(i)), leaf)
		}
	}
	return r.notFinite(what, leaf)
}

// finite checks the loss of the whole batch.
func (r *Replica) finite(result Result) error {
	if result.Late || !(math.IsNaN(result.Loss) || math.IsInf(result.Loss, 0)) {
		return nil
	}
	return notFiniteError{fmt.Sprintf("the loss of the whole batch is %v", result.Loss)}
}

// differentiated names what gradient i is of.
func (l *lane) differentiated(i int) string {
	if n := len(l.model.Variables); i >= n {
		at := l.lookups[i-n]
		return fmt.Sprintf("%q (rows of %q)", at.name, l.model.Embeddings[at.table].Name)
	}
	return fmt.Sprintf("%q", l.model.Variables[i].Name())
}

// dtype is the type of gradient i.
func (l *lane) dtype(i int) tensor.Dtype {
	if n := len(l.model.Variables); i >= n {
		return l.lookups[i-n].rows.Dtype()
	}
	return l.model.Variables[i].Dtype()
}

// kept is the type of the i-th kept variable.
func (l *lane) kept(i int) tensor.Dtype {
	if n := len(l.model.Variables); i >= n {
		return l.model.States[i-n].Variable.Dtype()
	}
	return l.model.Variables[i].Dtype()
}

func finiteBytes(b []byte, dt tensor.Dtype) bool {
	if dt == tensor.Float32 {
		return finiteFloats(wire.Floats[float32](b))
	}
	return finiteFloats(wire.Floats[float64](b))
}

// finiteFloats multiplies by zero: only NaN and Inf do not become it, and a
// sum of zeros has no branch.
func finiteFloats[T wire.Float](x []T) bool {
	var sum T
	for _, v := range x {
		sum += v * 0
	}
	return sum == 0
}
