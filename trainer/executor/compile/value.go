package compile

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Value is one value of a program: a leaf of the graph, or the result of an
// instruction. Nothing changes a value after Graph has returned.
type Value struct {
	Node   *gorgonia.Node // vertex of the graph that the value stands for; the first one if several were merged
	Op     Op
	Inputs []*Value // arguments of Op, in its order
	Dtype  tensor.Dtype
	Shape  tensor.Shape // no dimensions for a scalar
	Scalar bool         // Gorgonia holds the value as a scalar and not as a tensor
	Data   []byte       // contents of a leaf of kind Constant, row-major; nil for other values

	Root  *Value // whose memory the value lies in; the value itself unless it is an alias or written in place
	Place Place  // where the memory is; only a root's place counts

	id int // index among the values of the graph
}

// Place is where a root lies in memory.
type Place struct {
	Area  Area
	Index int // of inputs, fixed values and gradients: which one; in the arena: offset in bytes
}

// Area is a part of a program's memory.
type Area int

// The parts of a program's memory.
const (
	Nowhere     Area = iota
	InInputs         // fed before every run
	InFixed          // memory of the caller, the same in all runs
	InConstants      // known before the first run
	InGradients      // memory of the caller, named for each run
	InArena          // one block, planned for all computed values
)

// Size is the number of elements.
func (v *Value) Size() int { return memory.Elements(v.Shape) }

// Length is the number of bytes.
func (v *Value) Length() int { return v.Size() * int(v.Dtype.Size()) }

// padded is the number of bytes that the value takes in the arena.
func (v *Value) padded() int {
	return (max(v.Length(), 1) + memory.Alignment - 1) / memory.Alignment * memory.Alignment
}

// Label names the value in errors.
func (v *Value) Label() string { return label(v.Node) }

// known reports whether the value is known before the first run.
func (v *Value) known() bool { return v.Root.Place.Area == InConstants }

// computed reports whether an instruction writes the value in every run.
func (v *Value) computed() bool {
	switch v.Op.Kind {
	case Input, Fixed, Constant, Alias:
		return false
	}
	return !v.known()
}

// isGradient reports whether the value lies in the caller's memory for a gradient.
func (v *Value) isGradient() bool { return v.Place.Area == InGradients }

// enter makes the value a part of the graph, with a number of its own.
func (v *Value) enter(id int) {
	v.id, v.Root = id, v
	if v.Op.Kind == Alias {
		v.Root = v.Inputs[0].Root
	}
}

// put places the memory of a root.
func (v *Value) put(area Area, index int) { v.Place = Place{area, index} }

// share gives the value the memory of another root.
func (v *Value) share(root *Value) { v.Root = root }

// hold makes the value a constant and returns its memory.
func (v *Value) hold() []byte {
	v.put(InConstants, 0)
	v.Data = memory.Aligned(v.Length())
	return v.Data
}

// work is roughly the number of operations that the value takes.
func (v *Value) work() float64 {
	n := float64(v.Size())
	for _, in := range v.Inputs {
		n += float64(in.Size())
	}
	if v.Op.Kind == MatMul || v.Op.Kind == BatchedMatMul {
		s := v.Inputs[0].Shape
		_, k := Turned(s[len(s)-2:], v.Op.TransA)
		n += float64(v.Size()) * float64(k) / 8
	}
	return n
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
