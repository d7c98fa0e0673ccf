package compile

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Program is a compiled graph: the instructions of a run, their order and
// their memory. A machine that runs the program, such as that of package cpu,
// needs nothing else from the graph.
type Program struct {
	Inputs       []*Value      // inputs, in the order of Plan.Inputs
	Fixed        []*Value      // fixed values, whose memory belongs to the caller, in the order of Plan.Fixed
	Constants    []*Value      // values to compute once, before the first run, in this order; leaves are left out
	Instructions []Instruction // instructions of one run, in this order
	Gradients    []Gradient    // gradients of the loss, in the order of Plan.Differentiate
	Outputs      []*Value      // values that the caller reads, in the order of Plan.Outputs; the loss is last if the plan has one
	HasLoss      bool          // true if the last element of Outputs is the loss
	ArenaBytes   int           // size in bytes of the one block of memory that computed values share

	Contextual []operation.Contextual // operations whose Prepare method must be called before each run
}

// Instruction computes one value.
type Instruction struct {
	Value *Value
	Ready []int // indices into Program.Gradients: gradients that are complete after this instruction, and whose variables no later instruction reads
}

// Gradient is the gradient of the loss with respect to one leaf of the graph.
type Gradient struct {
	Value *Value // value in the caller's memory (Area InGradients), which belongs only to this gradient
	Name  string // name of the leaf
}

// Value is one value of a program: a leaf of the graph, or the result of an
// instruction. A Value is read-only after Graph has returned.
type Value struct {
	Node   *gorgonia.Node // vertex of the graph that computes the value; if equal vertices were merged, the first of them
	Op     Op
	Inputs []*Value // operands of the operation Op, in the order of its arguments
	Dtype  tensor.Dtype
	Shape  tensor.Shape // shape of the value; without dimensions for a scalar
	Scalar bool         // true if Gorgonia stores the value as a scalar and not as a tensor
	Data   []byte       // contents of a leaf of kind Constant, row-major; nil for other values

	Root  *Value // value whose memory this value uses; the value itself, unless it is an alias or overwrites an input
	Place Place  // location of the memory; valid only if Root is the value itself

	id int // index among all values of the graph, in builder.values
}

// Place is the location in memory of a root (a value with memory of its own).
type Place struct {
	Area  Area
	Index int // meaning depends on Area: index among inputs, fixed values or gradients, offset in bytes in InArena, otherwise 0
}

// Area names one of the separate parts of a program's memory.
type Area int

// The parts of a program's memory.
const (
	Nowhere     Area = iota
	InInputs         // memory of the machine, which the caller fills before every run
	InFixed          // memory of the caller, the same in all runs
	InConstants      // memory of constants, which are computed once, before the first run
	InGradients      // memory of the caller, passed to each run
	InArena          // one block of memory that all computed values share
)

// Size returns the number of elements of the value.
func (v *Value) Size() int { return memory.Elements(v.Shape) }

// Length returns the size of the value's contents in bytes.
func (v *Value) Length() int { return v.Size() * int(v.Dtype.Size()) }

// padded returns the number of bytes that the value takes in the arena: its
// length, rounded up to the alignment.
func (v *Value) padded() int {
	return (max(v.Length(), 1) + memory.Alignment - 1) / memory.Alignment * memory.Alignment
}

// Label returns the text by which error messages name the value.
func (v *Value) Label() string { return label(v.Node) }

// known reports whether the value is a constant, computed before the first
// run.
func (v *Value) known() bool { return v.Root.Place.Area == InConstants }

// computed reports whether an instruction writes the value in every run.
func (v *Value) computed() bool {
	switch v.Op.Kind {
	case Input, Fixed, Constant, Alias:
		return false
	}
	return !v.known()
}

// isGradient reports whether the value lies in the memory that the caller
// passes for a gradient.
func (v *Value) isGradient() bool { return v.Place.Area == InGradients }

// put sets the location of the value's memory.
func (v *Value) put(area Area, index int) { v.Place = Place{area, index} }

// hold allocates memory for a constant, marks the value as a constant, and
// returns the memory.
func (v *Value) hold() []byte {
	v.put(InConstants, 0)
	v.Data = memory.Aligned(v.Length())
	return v.Data
}

// work is a rough estimate of the work to compute the value, as a number of
// arithmetic operations.
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

// label returns the text by which error messages name vertex n.
func label(n *gorgonia.Node) string {
	if n == nil {
		return "a leaf that is nil"
	}
	if n.Op() == nil {
		return fmt.Sprintf("%q %v", n.Name(), n.Shape())
	}
	return fmt.Sprintf("%v, which is %s %v", n.Op(), n.Name(), n.Shape())
}

// Kind is the kind of an operation, such as Binary or MatMul.
type Kind int

// The kinds of operations. A value whose kind comes after Other has shapes and
// a type that plx's own kernels support.
const (
	Other    Kind = iota // operation without a kernel of plx: it implements operation.Kernel, or is called the way Gorgonia calls it
	Input                // leaf that the caller fills before every run
	Fixed                // leaf whose memory belongs to the caller
	Constant             // leaf whose contents are known when the graph is compiled
	Alias                // another shape for the memory of the input
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
	TanhGradient // gradient of tanh, (1 - y*y) g, which replaces three binary operations
)

// Op describes an operation completely, except for its inputs. Two operations
// whose fields print equally compute the same result from the same inputs.
type Op struct {
	Kind           Kind
	Code           string   // for Binary and Unary: the operator in Gorgonia's spelling, "+", "tanh", ...
	TransA, TransB bool     // for a product: true if the kernel reads operand A or B transposed
	Log            bool     // for Softmax and its gradient: true for the logarithm of the softmax
	Axes           []int    // for Sum, Max, Transpose and At: list of axes; for Repeat, Slice, Concat and Softmax: a single axis
	Window         []int    // for Im2Col and Col2Im: height and width of kernel, padding, stride and dilation
	Start, End     int      // for Slice: range of indices, without End
	Step           int      // for Slice: distance between neighboring indices; 0 means the whole axis, and Start and End are then 0 too
	Strides        [2][]int // for Binary with broadcast operands: strides of operands A and B; nil otherwise

	plain string // for Other: the operation's fields as text; empty if equal operations must not be merged
}

// mergeable reports whether two operations with equal fields and inputs have
// equal results, so that one result can serve both.
func (o Op) mergeable() bool { return o.Kind != Other || o.plain != "" }

// along returns a copy of the operation with other axes.
func (o Op) along(axes ...int) Op {
	o.Axes = axes
	return o
}

// inPlace reports whether the operation's kernel may write its result over its
// input. This requires that the kernel reads each element of the input before
// it writes the element of the result, and never again.
func (o Op) inPlace() bool {
	switch o.Kind {
	case Unary, MinBetween, MaxBetween, Copy, TanhGradient:
		return true
	case Binary:
		return o.Strides[0] == nil
	}
	return false
}

// SliceLength returns the length of the slice along its axis. n is the length
// of the whole axis.
func (o Op) SliceLength(n int) int {
	if o.Step == 0 {
		return n
	}
	return (o.End - o.Start + o.Step - 1) / o.Step
}
