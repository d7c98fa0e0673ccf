package executor

import (
	"fmt"

	"gorgonia.org/tensor"
)

// assemble makes the instructions in the order that was found.
func (c *compiler) assemble(arena int) error {
	p := c.program
	for i, g := range c.wanted.gradients {
		r := g.root
		if r.dtype == tensor.Float32 {
			r.cell = new(memory[float32])
		} else {
			r.cell = new(memory[float64])
		}
		p.gradients = append(p.gradients, target{vertex: r, name: c.wanted.variables[i].of.Name(), length: r.length()})
	}
	seen := map[Contextual]bool{}
	for _, v := range c.order {
		k, err := newKernel(v, c.lib)
		if err != nil {
			return err
		}
		p.instructions = append(p.instructions, instruction{kernel: k, vertex: v, name: v.title()})
		if v.op.kind == kindOther {
			if o, ok := v.of.Op().(Contextual); ok && !seen[o] {
				seen[o] = true
				p.contextual = append(p.contextual, o)
			}
		}
	}
	c.announce()
	if err := c.outputs(); err != nil {
		return err
	}
	p.description = c.describe(arena)
	return nil
}

// announce puts every gradient after the last instruction that writes it or
// reads its variable.
func (c *compiler) announce() {
	for i, g := range c.wanted.gradients {
		after := max(g.root.position, g.root.last)
		for _, v := range c.order {
			for _, in := range v.inputs {
				if in.root == c.wanted.variables[i].root {
					after = max(after, v.position)
				}
			}
		}
		at := &c.program.instructions[after]
		at.ready = append(at.ready, i)
	}
}

// outputs makes the values that Output returns.
func (c *compiler) outputs() error {
	outputs := c.wanted.outputs
	if c.plan.Loss != nil {
		c.program.loss = outputs[len(outputs)-1]
		outputs = outputs[:len(outputs)-1]
	}
	for _, v := range outputs {
		value, err := wrap(v.dtype, v.shape, v.scalar, v.root.bytes)
		if err != nil {
			return fmt.Errorf("output %s: %w", v.label(), err)
		}
		c.program.outputs = append(c.program.outputs, value)
	}
	return nil
}

// title names an instruction in a trace: what it does and for which vertex.
func (v *vertex) title() string {
	what := v.op.kind.String()
	switch {
	case v.op.kind == kindOther:
		what = fmt.Sprint(v.of.Op())
	case v.op.code != "":
		what = v.op.code
	}
	return fmt.Sprintf("%s %v #%d", what, v.shape, v.of.ID())
}
