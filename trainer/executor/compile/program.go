package compile

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Program says how to compute what is wanted of a graph. A machine such as
// package cpu's needs nothing else from the graph.
type Program struct {
	Inputs       []*Value      // by Plan.Inputs
	Fixed        []*Value      // by Plan.Fixed
	Constants    []*Value      // computed once, before the first run, in this order; leaves are not among them
	Instructions []Instruction // what a run does, in this order
	Gradients    []Gradient    // by Plan.Differentiate
	Outputs      []*Value      // by Plan.Outputs; the loss comes last if one is wanted
	HasLoss      bool          // the last output is the loss
	ArenaBytes   int           // size of the memory that computed values share

	Contextual []operation.Contextual // operations to prepare before each run
}

// Instruction computes one value.
type Instruction struct {
	Value *Value
	Ready []int // indices of gradients that are complete now and whose variables no later instruction reads
}

// Gradient is the gradient of one leaf.
type Gradient struct {
	Value *Value // a root with a place InGradients
	Name  string // of the leaf
}

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

	Root  *Value // the value whose memory this one lies in; itself unless it is an alias or written in place
	Place Place  // where the memory is; only a root's place counts

	id int // index among the values of the graph
}

// Place is where a root lies in memory.
type Place struct {
	Area  Area
	Index int // index among inputs, fixed values or gradients; in the arena, offset in bytes
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

// put places the memory of a root.
func (v *Value) put(area Area, index int) { v.Place = Place{area, index} }

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

// Kind is what an operation does.
type Kind int

// The kinds of operations. An operation on float32 or float64 of a kind after
// Other has shapes that suit a kernel.
const (
	Other    Kind = iota // called as Gorgonia calls it, or an operation.Kernel
	Input                // leaf that is fed before every run
	Fixed                // leaf in memory of the caller
	Constant             // leaf that is known when the graph is compiled
	Alias                // its input's memory under another shape
	Copy                 // copy of its input
	Binary
	Unary
	MatMul
	MatVec
	Dot
	Outer
	BatchedMatMul
	Sum
	Max
	Repeat
	Transpose
	Slice
	SliceGradient
	Concat
	Im2Col
	Col2Im
	Softmax
	SoftmaxGradient
	At
	MinBetween
	MaxBetween
	TanhGradient // (1 - y*y) g, made of a chain of binary operations
)

// Op is everything that a value depends on besides its inputs. Two operations
// whose fields are equal as text compute the same.
type Op struct {
	Kind           Kind
	Code           string   // with Binary and Unary: the operation in Gorgonia's spelling, "+", "tanh", ...
	TransA, TransB bool     // with a product: the operand is read transposed
	Log            bool     // with Softmax: compute its logarithm
	Axes           []int    // with a reduction, a permutation or At; one axis of Repeat, Slice, Concat, Softmax
	Window         []int    // with Im2Col: kernel, padding, stride, dilation, each height and width
	Start, End     int      // with Slice: half-open range of indices
	Step           int      // with Slice; 0 means the whole axis, and Start and End are 0 too
	Strides        [2][]int // with Binary whose operands are repeated while they are read; nil otherwise

	plain string // with Other: its fields as text; empty if the operation must not be merged
}

// mergeable reports whether equal text means equal results.
func (o Op) mergeable() bool { return o.Kind != Other || o.plain != "" }

// along returns the operation along other axes.
func (o Op) along(axes ...int) Op {
	o.Axes = axes
	return o
}

// inPlace reports whether the kernel reads every element before it writes it,
// and never again. Its result may then lie in its input's memory.
func (o Op) inPlace() bool {
	switch o.Kind {
	case Unary, MinBetween, MaxBetween, Copy, TanhGradient:
		return true
	case Binary:
		return o.Strides[0] == nil
	}
	return false
}

// SliceLength is the length of a slice along its axis, whose length is n.
func (o Op) SliceLength(n int) int {
	if o.Step == 0 {
		return n
	}
	return (o.End - o.Start + o.Step - 1) / o.Step
}
