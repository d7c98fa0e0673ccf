package compile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/plx-run/plx/trainer/executor/vertex"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Plan lists the inputs, the variables and the requested results of a graph to
// compile.
type Plan struct {
	// Inputs are leaves that the caller fills before every run. The program
	// allocates their memory.
	Inputs gorgonia.Nodes
	// Fixed are leaves whose memory the caller owns, such as a model's
	// variables. Several programs (replicas of a model) may share that memory.
	Fixed gorgonia.Nodes
	// FixedValues are the values of Fixed, in row-major order. The caller may
	// change their contents between runs. During a run it may change a
	// variable only after the run has reported that variable's gradient as
	// ready.
	FixedValues []gorgonia.Value
	// Loss is the scalar to differentiate, of type float32 or float64. It may
	// be nil if Differentiate is empty.
	Loss *gorgonia.Node
	// Differentiate lists the leaves, among Fixed and Inputs, for which the
	// program computes the gradient of Loss.
	Differentiate gorgonia.Nodes
	// Outputs are further values that the caller reads after a run. They stay
	// valid until the next run.
	Outputs gorgonia.Nodes
}

// check returns an error for a contradictory plan. It must run before
// differentiate adds vertices to the graph.
func (p Plan) check(g *gorgonia.ExprGraph) error {
	if p.Loss == nil && len(p.Differentiate) > 0 {
		return errors.New("there is no loss to differentiate")
	}
	if len(p.Fixed) != len(p.FixedValues) {
		return fmt.Errorf("%d fixed leaves and %d values for them", len(p.Fixed), len(p.FixedValues))
	}
	if err := p.checkLoss(); err != nil {
		return err
	}
	leaves := map[*gorgonia.Node]bool{}
	for _, n := range append(append(gorgonia.Nodes{}, p.Inputs...), p.Fixed...) {
		if n == nil || n.Op() != nil {
			return fmt.Errorf("%s is computed: an input or a fixed value must be a leaf", label(n))
		}
		if leaves[n] {
			return fmt.Errorf("%s is listed twice among inputs and fixed values", label(n))
		}
		leaves[n] = true
	}
	for _, n := range p.Differentiate {
		if !leaves[n] {
			return fmt.Errorf("cannot differentiate by %s, which is neither an input nor a fixed value", label(n))
		}
		if n.Deriv() != nil {
			return fmt.Errorf("%s has a gradient already: compile a new graph", label(n))
		}
	}
	for _, n := range append(append(gorgonia.Nodes{}, p.Outputs...), p.Loss) {
		if n != nil && n.Graph() != g {
			return fmt.Errorf("%s belongs to another graph", label(n))
		}
	}
	return checkIndex(g)
}

func (p Plan) checkLoss() error {
	if p.Loss == nil {
		if len(p.Outputs) == 0 {
			return errors.New("the plan has neither a loss nor an output")
		}
		return nil
	}
	if dt := p.Loss.Dtype(); dt != tensor.Float32 && dt != tensor.Float64 {
		return fmt.Errorf("the loss is %v, want float32 or float64", dt)
	}
	if !p.Loss.IsScalar() {
		return fmt.Errorf("the loss has shape %v, want a scalar", p.Loss.Shape())
	}
	return nil
}

// checkIndex refuses a graph whose index of vertices is wrong. Some of
// Gorgonia's rewrites remove a vertex and renumber others, but do not update
// the index that gorgonia.Grad uses. Grad would then use the wrong vertices.
func checkIndex(g *gorgonia.ExprGraph) error {
	for _, n := range g.AllNodes() {
		if g.Node(n.ID()) != n {
			return fmt.Errorf("gorgonia lost track of %s when it rewrote the graph, as BinaryXent makes it do: write the entropy with Log and Log1p", label(n))
		}
	}
	return nil
}

// differentiate adds the vertices of the gradients to the graph and returns
// them.
func (p Plan) differentiate(g *gorgonia.ExprGraph) (grads gorgonia.Nodes, err error) {
	if len(p.Differentiate) == 0 {
		return nil, nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("differentiate %s: %v", label(p.Loss), r)
		}
	}()
	if err := p.vetGradients(); err != nil {
		return nil, err
	}
	if grads, err = gorgonia.Grad(p.Loss, p.Differentiate...); err != nil {
		return nil, fmt.Errorf("differentiate %s: %w", label(p.Loss), err)
	}
	return grads, checkIndex(g)
}

// stateful maps each of Gorgonia's operations that keep state between calls to
// the reason, or to the replacement that the error message recommends.
var stateful = map[string]string{
	"dropoutOp":       "its dropout is seeded by the clock and scales gradients wrongly: use nn.Dropout",
	"dropoutDiffOp":   "its dropout is seeded by the clock and scales gradients wrongly: use nn.Dropout",
	"randomOp":        "random tensors are seeded by the clock: feed them as an input",
	"BatchNormOp":     "it keeps its statistics in hidden state: use nn.BatchNorm",
	"batchnormDiffOp": "it keeps its statistics in hidden state: use nn.BatchNorm",
	"maxPoolOp":       "it keeps a mask between forward and backward: use nn.MaxPool2D",
	"maxPoolDiffOp":   "it keeps a mask between forward and backward: use nn.MaxPool2D",
	"GroupNormOp":     "it keeps its statistics in hidden state",
	"groupNormDiffOp": "it keeps its statistics in hidden state",
	"ctcLossOp":       "it keeps values between forward and backward",
	"ctcLossDiffOp":   "it keeps values between forward and backward",
	"readOp":          "list the value in Plan.Outputs",
	"letOp":           "assignments inside a graph are not run",
}

// vet refuses an operation whose result may depend on more than its fields and
// inputs. It returns the fields as text, by which equal operations are merged.
// The text is empty for an operation that must not be merged.
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

// wrongGradients lists operations whose gradient Gorgonia computes wrongly, or
// for whose gradient it panics. The text is the replacement that the error
// message recommends.
var wrongGradients = map[string]string{
	"log2":                "use Log and divide by the logarithm of 2",
	"invSqrt":             "use Inverse of Sqrt",
	"byIndicesOp":         "transpose the value so that the indices are of its first axis",
	"outer":               "reshape the vectors to (n, 1) and (1, m) and use Mul",
	"globalAveragePoolOp": "use nn.AvgPool2D with the whole image as its window",
}

// vetGradients refuses to differentiate through an operation whose gradient
// Gorgonia computes wrongly. It also refuses a variable that the loss does not
// depend on. It must run before the gradients are added to the graph.
func (p Plan) vetGradients() error {
	depends := map[*gorgonia.Node]bool{}
	for _, n := range p.Differentiate {
		depends[n] = true
	}
	known := map[*gorgonia.Node]bool{}
	var visit func(n *gorgonia.Node) error
	visit = func(n *gorgonia.Node) error {
		if known[n] {
			return nil
		}
		known[n] = true
		below, err := vertex.Children(n)
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
		switch hidden, _, _ := vertex.Fields(n.Op()); {
		case op.Kind == Outer:
			name = "outer"
		case wrongGradients[hidden] != "":
			name = hidden
		}
		if advice := wrongGradients[name]; advice != "" {
			return fmt.Errorf("%s: gorgonia computes its gradient wrongly: %s", label(n), advice)
		}
		return nil
	}
	if err := visit(p.Loss); err != nil {
		return err
	}
	for _, n := range p.Differentiate {
		if !known[n] {
			return fmt.Errorf("%s gets no gradient: the loss does not depend on it", label(n))
		}
	}
	return nil
}
