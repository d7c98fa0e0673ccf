package compile

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
)

// largestFolded is a number of bytes. A value that depends only on constants
// is computed once, before the first run, if it has at most this size. Larger
// values are computed in every run.
const largestFolded = 4 << 20

// Graph compiles the part of g that computes the loss, gradients and outputs
// of plan p. Graph adds vertices for the gradients to g.
//
// The error names the vertex of a refused operation, a leaf without a value, a
// gradient that does not exist, or shapes that do not fit together.
func Graph(g *gorgonia.ExprGraph, p Plan) (program *Program, err error) {
	defer func() {
		if r := recover(); r != nil {
			program, err = nil, fmt.Errorf("%v", r)
		}
	}()
	if err := p.check(g); err != nil {
		return nil, err
	}
	grads, err := p.differentiate(g)
	if err != nil {
		return nil, err
	}
	c := &compiler{builder: newBuilder(p)}
	if c.targets, err = c.builder.targets(p, grads); err != nil {
		return nil, err
	}
	if c.inputs, err = c.builder.leafValues(p.Inputs); err != nil {
		return nil, err
	}
	if c.fixed, err = c.builder.leafValues(p.Fixed); err != nil {
		return nil, err
	}
	for _, v := range c.inputs {
		if v.Scalar {
			return nil, fmt.Errorf("input %s is a scalar: give it the shape (1)", v.Label())
		}
	}
	c.fold()
	c.direct()
	return c.arrange(p.Loss != nil), nil
}

// compiler holds the state that the phases of Graph pass to each other.
type compiler struct {
	builder       *builder
	targets       targets
	inputs, fixed []*Value
	constants     []*Value
	gradients     []Gradient
}

// fold turns small values that depend only on constants into constants. The
// executor computes each of them once, before the first run.
func (c *compiler) fold() {
	var folded []*Value
	for _, v := range c.builder.values {
		if v.known() || len(v.Inputs) == 0 || v.Length() > largestFolded || !v.Op.mergeable() {
			continue
		}
		if slices.ContainsFunc(v.Inputs, func(in *Value) bool { return !in.known() }) {
			continue
		}
		v.put(InConstants, 0)
		folded = append(folded, v)
	}
	read := set{}
	for _, v := range c.targets.all() {
		read.add(v, func(*Value) bool { return true })
	}
	for _, v := range folded {
		if read[v] {
			c.constants = append(c.constants, v)
		}
	}
}

// direct makes instructions write gradients straight into the caller's memory.
// For some gradients it adds an instruction that copies the gradient there: if
// other instructions read the gradient, if the plan requests it twice, or if
// its operation has no kernel of plx and may keep a reference to its memory.
func (c *compiler) direct() {
	live := set{}
	for _, v := range c.targets.all() {
		live.addComputed(v)
	}
	uses := map[*Value]int{} // number of readers of each root value (a value with memory of its own); aliases do not count as readers
	for v := range live {
		if v.computed() {
			for _, in := range v.Inputs {
				uses[in.Root]++
			}
		}
	}
	for _, v := range c.targets.all() {
		uses[v.Root]++
	}
	for i, g := range c.targets.gradients {
		if r := g.Root; !r.computed() || uses[r] > 1 || r.Op.Kind == Other {
			g = c.builder.copyOf(g)
			c.targets.gradients[i] = g
		}
		g.Root.put(InGradients, i)
		c.gradients = append(c.gradients, Gradient{g.Root, c.targets.variables[i].Node.Name()})
	}
}

// arrange orders the instructions, plans the memory of their values and
// returns the finished Program.
func (c *compiler) arrange(hasLoss bool) *Program {
	values := c.builder.values
	order := c.targets.order(len(values))
	plan := newPlanner(values, order, c.targets.outputs)
	plan.joinInPlace()
	p := &Program{Inputs: c.inputs, Fixed: c.fixed, Constants: c.constants, Gradients: c.gradients,
		Outputs: c.targets.outputs, HasLoss: hasLoss, ArenaBytes: plan.place()}
	for _, v := range values {
		v.Root = plan.settle(v)
	}
	ready := c.announce(plan)
	seen := map[operation.Contextual]bool{}
	for i, v := range order {
		p.Instructions = append(p.Instructions, Instruction{v, ready[i]})
		if v.Op.Kind == Other {
			if o, ok := v.Node.Op().(operation.Contextual); ok && !seen[o] {
				seen[o] = true
				p.Contextual = append(p.Contextual, o)
			}
		}
	}
	return p
}

// announce returns, for each index of an instruction, the gradients that are
// ready after the instruction. A gradient is ready after the last instruction
// that writes the gradient or reads the variable to which it belongs.
func (c *compiler) announce(plan *planner) map[int][]int {
	ready := map[int][]int{}
	for i, g := range c.gradients {
		variable := c.targets.variables[i].Root
		after := max(plan.position[g.Value.id], plan.last[plan.settle(g.Value).id])
		for at, v := range plan.order {
			if slices.ContainsFunc(v.Inputs, func(in *Value) bool { return in.Root == variable }) {
				after = max(after, at)
			}
		}
		ready[after] = append(ready[after], i)
	}
	return ready
}
