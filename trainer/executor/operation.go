package executor

import (
	"fmt"
	"strings"
)

// kind is what an operation does, in this package's terms.
type kind int

const (
	kindOther    kind = iota // called as Gorgonia would, or a Kernel
	kindInput                // leaf, memory of the program
	kindFixed                // leaf, memory of the caller
	kindConstant             // known when the program is compiled
	kindAlias                // its input's memory under another shape
	kindCopy                 // a copy of its input
	kindBinary
	kindUnary
	kindMatMul
	kindMatVec
	kindDot
	kindOuter
	kindBatchedMatMul
	kindSum
	kindMax
	kindRepeat
	kindTranspose
	kindSlice
	kindSliceIncr
	kindConcat
	kindIm2Col
	kindCol2Im
	kindSoftMax
	kindSoftMaxDiff
	kindAt
	kindMinBetween
	kindMaxBetween
	kindTanhDiff // (1 - y y) g, made of a binary chain
)

var kindNames = [...]string{
	"other", "input", "fixed", "constant", "alias", "copy", "binary", "unary", "matmul", "matvec", "dot", "outer",
	"batched matmul", "sum", "max", "repeat", "transpose", "slice", "slice gradient", "concat", "im2col", "col2im",
	"softmax", "softmax gradient", "at", "min", "max", "tanh gradient",
}

func (k kind) String() string { return kindNames[k] }

// operation is everything that the result of a vertex depends on besides its
// inputs: two operations with the same text do the same.
type operation struct {
	kind           kind
	code           string // of an elementwise operation: "+", "tanh", ...
	transA, transB bool
	log            bool     // of a softmax
	axes           []int    // of a reduction, a permutation, coordinates; one axis for repeat, slice, concat, softmax
	window         []int    // of a convolution: kernel, padding, stride, dilation, each height and width
	start, end     int      // of a slice
	step           int      // of a slice; 0 where it is all of its input
	strides        [2][]int // of a binary operation whose operands are repeated on the way
	plain          string   // for kindOther: its fields as text, empty where it must not be merged
}

// text is the same for two operations only where all of their fields are.
func (o operation) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %q %t %t %t %v %v %d %d %d %v %v %q", o.kind, o.code, o.transA, o.transB, o.log,
		o.axes, o.window, o.start, o.end, o.step, o.strides[0], o.strides[1], o.plain)
	return b.String()
}

// mergeable tells whether equal text means equal results.
func (o operation) mergeable() bool {
	return o.kind != kindOther || o.plain != ""
}
