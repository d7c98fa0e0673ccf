package compile

import (
	"fmt"
	"strings"
)

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
// with equal text compute the same.
type Op struct {
	Kind           Kind
	Code           string   // of Binary and Unary, in Gorgonia's spelling: "+", "tanh", ...
	TransA, TransB bool     // of a product: the operand is read transposed
	Log            bool     // of a softmax: its logarithm
	Axes           []int    // of a reduction, a permutation or At; one axis of Repeat, Slice, Concat, Softmax
	Window         []int    // of Im2Col: kernel, padding, stride, dilation, each height and width
	Start, End     int      // of a slice
	Step           int      // of a slice; 0 means the whole axis, and Start and End are 0 too
	Strides        [2][]int // of Binary with operands that are repeated while they are read; nil otherwise

	plain string // of Other: its fields as text; empty if it must not be merged
}

// text is equal for two operations only if all their fields are.
func (o Op) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %q %t %t %t %v %v %d %d %d %v %v %q", o.Kind, o.Code, o.TransA, o.TransB, o.Log,
		o.Axes, o.Window, o.Start, o.End, o.Step, o.Strides[0], o.Strides[1], o.plain)
	return b.String()
}

// mergeable reports whether equal text means equal results.
func (o Op) mergeable() bool { return o.Kind != Other || o.plain != "" }

// along returns the operation along another axis.
func (o Op) along(axis int) Op {
	o.Axes = []int{axis}
	return o
}

// turned returns the product with operands that are transposed once more.
func (o Op) turned(a, b bool) Op {
	o.TransA, o.TransB = o.TransA != a, o.TransB != b
	return o
}

// strided returns the operation with operands that are read by strides.
func (o Op) strided(a, b []int) Op {
	o.Strides = [2][]int{a, b}
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
