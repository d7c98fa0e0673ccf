package executor

import "fmt"

// Description is a program for people and for an exported graph.
type Description struct {
	// Vertices are the values, each after those it is computed from.
	Vertices []Vertex
	// Instructions are what a run does, in its order.
	Instructions []Instruction
	// Arena is the size in bytes of the memory planned for all values that
	// are computed, gradients and constants aside.
	Arena int
}

// Vertex is one value. Its Inputs are the edges of the graph.
type Vertex struct {
	ID        int // index among Vertices
	Operation string
	Name      string
	Shape     []int
	Type      string
	Inputs    []int
	Memory    string // "input", "fixed", "constant", "gradient 3", "arena", "unused"
	Offset    int    // in the arena, bytes
	Bytes     int
	SharesOf  int // the vertex whose memory it lies in; its own ID if none
}

// Instruction computes one vertex.
type Instruction struct {
	Vertex int // index among Vertices
	Name   string
	Ready  []int // gradients announced after it, by Plan.Differentiate
}

// Describe returns the program as it is run: only what is needed for what was
// wanted.
func (p *Program) Describe() Description { return p.description }

func (c *compiler) describe(arena int) Description {
	d := Description{Arena: arena}
	live := map[*vertex]bool{}
	for _, v := range c.wanted.gradients {
		mark(v, live)
	}
	for _, v := range c.wanted.outputs {
		mark(v, live)
	}
	index := map[*vertex]int{}
	for _, v := range c.builder.vertices {
		if live[v] {
			index[v] = len(index)
			d.Vertices = append(d.Vertices, v.describe(index))
		}
	}
	for i := range d.Vertices {
		v := &d.Vertices[i]
		v.ID = i
	}
	for _, in := range c.program.instructions {
		d.Instructions = append(d.Instructions, Instruction{index[in.vertex], in.name, in.ready})
	}
	return d
}

func (v *vertex) describe(index map[*vertex]int) Vertex {
	out := Vertex{Operation: v.op.kind.String(), Name: v.of.Name(), Shape: v.shape, Type: v.dtype.String(),
		Offset: v.root.offset, Bytes: v.length(), SharesOf: index[v.root]}
	if v.op.code != "" {
		out.Operation = v.op.code
	}
	if v.op.kind == kindOther {
		out.Operation = fmt.Sprint(v.of.Op())
	}
	if !v.constant {
		for _, in := range v.inputs {
			out.Inputs = append(out.Inputs, index[in])
		}
	}
	switch r := v.root; {
	case r.constant:
		out.Memory = "constant"
	case r.op.kind == kindInput, r.op.kind == kindFixed:
		out.Memory = r.op.kind.String()
	case r.gradient >= 0:
		out.Memory = fmt.Sprintf("gradient %d", r.gradient)
	default:
		out.Memory = "arena"
	}
	return out
}
