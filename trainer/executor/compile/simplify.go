package compile

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/tensor"
)

// simplify rewrites value v into the form that its kernel takes. An operation
// that moves no elements becomes an alias of its input. An operation with
// shapes that no kernel of plx supports becomes Other, which the operation's
// own method computes.
func (v *Value) simplify() error {
	switch v.Op.Kind {
	case Other:
		return nil
	case Alias:
		if v.Inputs[0].Size() != v.Size() || v.Inputs[0].Dtype != v.Dtype {
			return fmt.Errorf("cannot use a value of shape %v as one of shape %v", v.Inputs[0].Shape, v.Shape)
		}
		return nil
	}
	from := make([]tensor.Shape, len(v.Inputs))
	for i, in := range v.Inputs {
		from[i] = in.Shape
	}
	if !v.floats() || !v.Op.fits(v.Shape, from) {
		plain, err := vet(v.Node)
		v.Op = Op{Kind: Other, plain: plain}
		return err
	}
	switch v.Op.Kind {
	case Binary:
		v.spread()
		v.joinTanhGradient()
	case Softmax, SoftmaxGradient:
		v.Op = v.Op.along(v.Op.softmaxAxis(v.Shape))
	case MatMul:
		v.Op.TransA = v.foldTranspose(0) != v.Op.TransA
		v.Op.TransB = v.foldTranspose(1) != v.Op.TransB
	case Sum, Max, Repeat, Slice, SliceGradient, Concat:
		if v.Inputs[0].Size() == v.Size() && (len(v.Inputs) == 1 || v.Op.Kind == Repeat) {
			v.Op, v.Inputs = Op{Kind: Alias}, v.Inputs[:1]
		}
	case Transpose:
		if keepsOrder(v.Inputs[0].Shape, v.Op.Axes) {
			v.Op = Op{Kind: Alias}
		}
	}
	return nil
}

// floats reports whether v and its inputs are all float32 or all float64, the
// types that have kernels. The second input of Repeat is a count and may have
// any type.
func (v *Value) floats() bool {
	if v.Dtype != tensor.Float32 && v.Dtype != tensor.Float64 {
		return false
	}
	for i, in := range v.Inputs {
		if in.Dtype != v.Dtype && !(v.Op.Kind == Repeat && i == 1) {
			return false
		}
	}
	return true
}

// foldTranspose looks whether input i of a product is a transposed matrix. If
// so, it replaces the input by the matrix before the transposition and returns
// true; the caller then sets the product's transposition flag.
func (v *Value) foldTranspose(i int) bool {
	in := v.Inputs[i]
	if in.Op.Kind != Transpose || len(in.Shape) != 2 || in.Op.Axes[0] != 1 {
		return false
	}
	v.Inputs[i] = in.Inputs[0]
	return true
}

// spread lets an elementwise operation with broadcast operands read the
// operands as they were before they were repeated. The stride is 0 along each
// dimension that was repeated.
func (v *Value) spread() {
	if v.Size() <= 1 {
		return
	}
	a, sa := v.Inputs[0].unrepeated(v.Shape)
	b, sb := v.Inputs[1].unrepeated(v.Shape)
	if a == v.Inputs[0] && b == v.Inputs[1] || sa == nil || sb == nil {
		return
	}
	v.Inputs = []*Value{a, b}
	v.Op.Strides = [2][]int{sa, sb}
}

// joinTanhGradient replaces the three operations that Gorgonia makes for the
// gradient of tanh by one instruction, (1 - y*y) * g. The product y*y stays in
// the program only if another value needs it.
func (v *Value) joinTanhGradient() {
	if v.Op.Code != "⊙" || v.Op.Strides[0] != nil {
		return
	}
	minus, g := v.Inputs[0], v.Inputs[1]
	if !minus.isBinary("-") || minus.Size() != v.Size() || g.Size() != v.Size() || !minus.Inputs[0].isOne() {
		return
	}
	square := minus.Inputs[1]
	if !square.isBinary("⊙") || square.Inputs[0] != square.Inputs[1] || square.Size() != v.Size() {
		return
	}
	v.Op, v.Inputs = Op{Kind: TanhGradient}, []*Value{square.Inputs[0], g}
}

func (v *Value) isBinary(code string) bool { return v.Op.Kind == Binary && v.Op.Code == code }

// isOne reports whether v is the constant 1.
func (v *Value) isOne() bool {
	if v.Op.Kind != Constant || v.Size() != 1 {
		return false
	}
	if v.Dtype == tensor.Float32 {
		return memory.View[float32](v.Data)[0] == 1
	}
	return v.Dtype == tensor.Float64 && memory.View[float64](v.Data)[0] == 1
}

// unrepeated looks whether v repeats (broadcasts) another value. If so, it
// returns that value, else v itself. It also returns the strides with which a
// loop over shape reads the returned value. The strides are nil if v's shape
// differs from shape.
func (v *Value) unrepeated(shape tensor.Shape) (*Value, []int) {
	if v.Size() == 1 {
		return v, make([]int, len(shape))
	}
	if !slices.Equal(v.Shape, shape) {
		return v, nil
	}
	zero := make([]bool, len(shape))
	from := v
	for from.Op.Kind == Repeat {
		below, along := from.Inputs[0], from.Op.Axes[0]
		if below.Size() == 1 {
			return below, make([]int, len(shape))
		}
		if len(below.Shape) != len(shape) || below.Shape[along] != 1 {
			break
		}
		zero[along] = true
		from = below
	}
	strides := Strides(from.Shape)
	for i := range strides {
		if zero[i] {
			strides[i] = 0
		}
	}
	return from, strides
}

// keepsOrder reports whether the permutation axes leaves the elements in the
// same order in memory, because it moves only dimensions of size 1.
func keepsOrder(shape, axes []int) bool {
	var moved []int
	for _, a := range axes {
		if a < 0 || a >= len(shape) {
			return false
		}
		if shape[a] != 1 {
			moved = append(moved, a)
		}
	}
	return slices.IsSorted(moved)
}

// fits reports whether the operation's kernel supports the shapes. The
// parameter to is the shape of the result, and from are the shapes of the
// operands.
func (o Op) fits(to tensor.Shape, from []tensor.Shape) bool {
	switch o.Kind {
	case Binary, Unary, MinBetween, MaxBetween, Softmax, SoftmaxGradient:
		return o.fitsElements(to, from)
	case Slice, SliceGradient, Concat, Im2Col, Col2Im:
		return o.fitsPieces(to, from)
	case Dot, Outer, MatVec, MatMul, BatchedMatMul:
		return o.fitsProduct(to, from[0], from[1])
	}
	size, in := memory.Elements(to), from[0]
	switch o.Kind {
	case Sum, Max:
		return size == memory.Elements(reduced(in, o.Axes))
	case Repeat:
		return size > 0 && memory.Elements(in) > 0 && size%memory.Elements(in) == 0
	case Transpose:
		return len(o.Axes) == len(in) && size == memory.Elements(in)
	}
	return len(o.Axes) == len(in) && size == 1 // At is the only other kind that is left
}

// fitsElements implements fits for elementwise operations, whose result has as
// many elements as an operand.
func (o Op) fitsElements(to tensor.Shape, from []tensor.Shape) bool {
	size := memory.Elements(to)
	if o.Kind == Binary {
		a, b := memory.Elements(from[0]), memory.Elements(from[1])
		return max(a, b) == size && (a == size || a == 1) && (b == size || b == 1)
	}
	if o.Kind == SoftmaxGradient {
		from = from[1:] // the kernel does not read the first input, the softmax's operand
	}
	for _, s := range from {
		if memory.Elements(s) != size {
			return false
		}
	}
	return o.Kind != Softmax && o.Kind != SoftmaxGradient || o.softmaxAxis(to) >= 0
}

// fitsPieces implements fits for slices, concatenation and im2col. These
// operations copy pieces of their operands.
func (o Op) fitsPieces(to tensor.Shape, from []tensor.Shape) bool {
	switch o.Kind {
	case Slice:
		return o.Axes[0] < len(from[0]) && o.sliced(from[0]) == memory.Elements(to)
	case SliceGradient:
		return memory.Elements(from[0]) == memory.Elements(to) && o.Axes[0] < len(to) && o.sliced(to) == memory.Elements(from[1])
	case Concat:
		return fitsConcat(to, from, o.Axes[0])
	}
	images, columns := from[0], to
	if o.Kind == Col2Im {
		images, columns = columns, images
	}
	return len(images) == 4 && len(columns) == 4 && len(o.Window) == 8 && slices.Equal(columns, patches(images, o.Window))
}

func (o Op) fitsProduct(to, a, b tensor.Shape) bool {
	size := memory.Elements(to)
	switch o.Kind {
	case Dot:
		return memory.Elements(a) == memory.Elements(b) && size == 1
	case Outer:
		return memory.Elements(a)*memory.Elements(b) == size
	case MatVec:
		if len(a) != 2 {
			return false
		}
		m, k := Turned(a, o.TransA)
		return memory.Elements(b) == k && size == m
	}
	n := len(a) - 2
	if n < 0 || len(b) != len(a) || len(to) != len(a) || !slices.Equal(a[:n], b[:n]) || o.Kind == MatMul && n != 0 {
		return false
	}
	m, k := Turned(a[n:], o.TransA)
	k2, c := Turned(b[n:], o.TransB)
	return k == k2 && size == memory.Elements(a[:n])*m*c
}

// Turned returns the numbers of rows and columns of a matrix of shape s,
// exchanged if the matrix is read transposed.
func Turned(s []int, transposed bool) (rows, cols int) {
	if transposed {
		return s[1], s[0]
	}
	return s[0], s[1]
}

// Threefold splits a shape at an axis. It returns the number of elements
// before the axis, the length of the axis, and the number of elements after
// the axis.
func Threefold(shape []int, axis int) (outer, n, inner int) {
	return memory.Elements(shape[:axis]), shape[axis], memory.Elements(shape[axis+1:])
}

// Strides returns the strides of a row-major tensor of that shape, in
// elements.
func Strides(shape []int) []int {
	s := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= shape[i]
	}
	return s
}

// softmaxAxis returns the axis of a softmax over shape s. If the operation has
// axis -1, softmaxAxis returns Gorgonia's default axis. The result -1 means
// that s has no such axis.
func (o Op) softmaxAxis(s tensor.Shape) int {
	axis := o.Axes[0]
	switch {
	case axis >= len(s) || axis < -1 || len(s) == 0:
		return -1
	case axis >= 0:
		return axis
	case len(s) == 1 || s.IsColVec():
		return 0
	}
	return len(s) - 1
}

// sliced returns the number of elements of a slice of a tensor with the given
// shape. It returns -1 if the slice ends outside the shape.
func (o Op) sliced(shape []int) int {
	outer, n, inner := Threefold(shape, o.Axes[0])
	if o.Step != 0 && o.End > n {
		return -1
	}
	return outer * o.SliceLength(n) * inner
}

// patches returns the shape of the result of Im2Col. s is the shape of the
// images (batch, channels, height, width) and w is Op.Window.
func patches(s tensor.Shape, w []int) tensor.Shape {
	height := (s[2]+2*w[2]-(w[6]*(w[0]-1)+1))/w[4] + 1
	width := (s[3]+2*w[3]-(w[7]*(w[1]-1)+1))/w[5] + 1
	return tensor.Shape{s[0], height, width, s[1] * w[0] * w[1]}
}

func fitsConcat(to tensor.Shape, from []tensor.Shape, axis int) bool {
	if axis >= len(to) {
		return false
	}
	outer, n, inner := Threefold(to, axis)
	total := 0
	for _, s := range from {
		if len(s) != len(to) {
			return false
		}
		o, m, i := Threefold(s, axis)
		if o != outer || i != inner {
			return false
		}
		total += m
	}
	return total == n
}

// RepeatGeometry describes how a tensor is repeated along one axis. from is
// the tensor's shape, to is the shape of the result, and along is the axis.
// inner is the number of elements in one slice of that axis, and times says
// how often each slice is repeated. Dimensions missing in from count as size
// 1.
func RepeatGeometry(to, from tensor.Shape, along int) (inner, times int) {
	size := memory.Elements(from)
	times = memory.Elements(to) / size
	if size == 1 || along >= len(from) {
		return 1, times
	}
	return memory.Elements(from[along+1:]), times
}

// reduced returns shape without the given axes. If axes is empty, the
// reduction is over all dimensions, and the result has no dimension.
func reduced(shape, axes []int) []int {
	var s []int
	for i, d := range shape {
		if len(axes) > 0 && !slices.Contains(axes, i) {
			s = append(s, d)
		}
	}
	return s
}
