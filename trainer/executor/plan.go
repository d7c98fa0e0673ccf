package executor

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Plan says what of a graph is wanted.
type Plan struct {
	// Inputs are leaves fed before every run. Their memory is the program's.
	Inputs gorgonia.Nodes
	// Fixed are leaves whose memory is the caller's and shared by all lanes.
	Fixed gorgonia.Nodes
	// FixedValues are the values of Fixed, row-major. The caller changes what
	// they hold between runs, or once ready announced the variable.
	FixedValues []gorgonia.Value
	// Loss is a scalar, float32 or float64. It may be nil where nothing is
	// differentiated.
	Loss *gorgonia.Node
	// Differentiate are the leaves, among Fixed or Inputs, whose gradient of
	// Loss is wanted.
	Differentiate gorgonia.Nodes
	// Outputs are further values wanted after a run. Their memory is used for
	// nothing else until the next run.
	Outputs gorgonia.Nodes
}

// Call is the circumstances of one run.
type Call struct {
	Step   uint64
	Leaf   int // which virtual worker this run is
	Leaves int // how many there are
	Seed   uint64
	Train  bool
}

// Contextual is implemented by operations that need the call: dropout, batch
// normalisation. Prepare is called before each run, on the goroutine of Run.
type Contextual interface {
	Prepare(Call)
}

// Kernel is implemented by operations that bring their own kernel. Run writes
// the result into out, which has the inferred shape and undefined contents,
// and allocates nothing. Out shares no memory with the inputs. All values are
// row-major; they stay the same objects from run to run. Mind that Data of a
// tensor allocates, Float32s and Float64s do not.
type Kernel interface {
	Run(out gorgonia.Value, inputs ...gorgonia.Value) error
}

// check says what is wrong with a plan before the graph is touched.
func (p Plan) check(g *gorgonia.ExprGraph) error {
	if len(p.Fixed) != len(p.FixedValues) {
		return fmt.Errorf("%d fixed leaves and %d values for them", len(p.Fixed), len(p.FixedValues))
	}
	if p.Loss == nil && len(p.Differentiate) > 0 {
		return errors.New("there is no loss to differentiate")
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
			return fmt.Errorf("%s is to be differentiated by, but is neither an input nor a fixed value", label(n))
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
			return errors.New("nothing is wanted: neither a loss nor an output")
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

// checkIndex refuses a graph whose vertices Gorgonia would mistake for one
// another: removing a vertex, which some of its rewrites do, moves others
// without telling the index by which Grad finds them.
func checkIndex(g *gorgonia.ExprGraph) error {
	for _, n := range g.AllNodes() {
		if g.Node(n.ID()) != n {
			return fmt.Errorf("gorgonia lost track of %s when it rewrote the graph: take the logarithm of 1+x right after x is added, or use Log1p", label(n))
		}
	}
	return nil
}

// differentiate adds the gradients to the graph.
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

// label names a vertex in an error.
func label(n *gorgonia.Node) string {
	if n == nil {
		return "a leaf that is nil"
	}
	if n.Op() == nil {
		return fmt.Sprintf("%q %v", n.Name(), n.Shape())
	}
	return fmt.Sprintf("%v, which is %s %v", n.Op(), n.Name(), n.Shape())
}
