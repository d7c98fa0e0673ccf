package compile

import (
	"fmt"
	"strings"

	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
)

// stateful are Gorgonia's operations that keep state between calls, each with
// what to use instead.
var stateful = map[string]string{
	"dropoutOp":       "its dropout is seeded by the clock and scales gradients wrongly: use nn.Dropout",
	"dropoutDiffOp":   "its dropout is seeded by the clock and scales gradients wrongly: use nn.Dropout",
	"randomOp":        "random tensors are seeded by the clock: feed them as an input",
	"BatchNormOp":     "it keeps its statistics out of sight: use nn.BatchNorm",
	"batchnormDiffOp": "it keeps its statistics out of sight: use nn.BatchNorm",
	"maxPoolOp":       "it keeps a mask between forward and backward: use nn.MaxPool2D",
	"maxPoolDiffOp":   "it keeps a mask between forward and backward: use nn.MaxPool2D",
	"GroupNormOp":     "it keeps its statistics out of sight",
	"groupNormDiffOp": "it keeps its statistics out of sight",
	"ctcLossOp":       "it keeps values between forward and backward",
	"ctcLossDiffOp":   "it keeps values between forward and backward",
	"readOp":          "list the value in Plan.Outputs",
	"letOp":           "assignments inside a graph are not run",
}

// vet refuses an operation whose result may depend on something besides its
// fields and inputs. It returns the fields as text, so that equal operations
// can be merged; the text is empty for operations that must not be merged.
func vet(n *gorgonia.Node) (plain string, err error) {
	op := n.Op()
	_, contextual := op.(operation.Contextual)
	_, kernel := op.(operation.Kernel)
	if contextual || kernel {
		return "", nil
	}
	name := fmt.Sprintf("%T", op)
	if short, ok := strings.CutPrefix(strings.TrimPrefix(name, "*"), "gorgonia."); ok && stateful[short] != "" {
		return "", fmt.Errorf("%s: gorgonia's %s is refused: %s", label(n), short, stateful[short])
	}
	plain, ok := plainText(op)
	if !ok {
		return "", fmt.Errorf("%s: operation %s holds pointers or functions in which there may be state: let it implement operation.Kernel or operation.Contextual", label(n), name)
	}
	return name + " " + plain, nil
}

// wrongGradients are operations whose gradient Gorgonia gets wrong, each with
// what to use instead.
var wrongGradients = map[string]string{
	"log2":    "use Log and divide by the logarithm of 2",
	"invSqrt": "use Inverse of Sqrt",
	"outer":   "reshape the vectors to (n, 1) and (1, m) and use Mul",
}

// vetGradients refuses to differentiate through an operation whose gradient
// Gorgonia gets wrong, and by a leaf that the loss does not depend on. It must
// see the graph before the gradients are added.
func (w Wanted) vetGradients() error {
	depends := map[*gorgonia.Node]bool{}
	for _, n := range w.Differentiate {
		depends[n] = true
	}
	known := map[*gorgonia.Node]bool{}
	var visit func(n *gorgonia.Node) error
	visit = func(n *gorgonia.Node) error {
		if known[n] {
			return nil
		}
		known[n] = true
		below, err := children(n)
		if err != nil {
			return err
		}
		for _, c := range below {
			if err := visit(c); err != nil {
				return err
			}
			depends[n] = depends[n] || depends[c]
		}
		if !depends[n] || n.Op() == nil {
			return nil
		}
		op, err := decode(n.Op())
		if err != nil {
			return err
		}
		name := op.Code
		if op.Kind == Outer {
			name = "outer"
		}
		if advice := wrongGradients[name]; advice != "" {
			return fmt.Errorf("%s: gorgonia computes its gradient wrongly: %s", label(n), advice)
		}
		return nil
	}
	if err := visit(w.Loss); err != nil {
		return err
	}
	for _, n := range w.Differentiate {
		if !known[n] {
			return fmt.Errorf("%s gets no gradient: the loss does not depend on it", label(n))
		}
	}
	return nil
}
