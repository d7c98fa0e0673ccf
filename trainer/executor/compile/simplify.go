package compile

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/tensor"
)

// simplify brings a value into the form that its kernel takes. It turns
// operations that move nothing into aliases, and operations whose shapes suit
// no kernel into Other.
func (v *Value) simplify() error {
	switch v.Op.Kind {
	case Other:
		return nil
	case Alias:
		if v.Inputs[0].Size() != v.Size() || v.Inputs[0].Dtype != v.Dtype {
			return fmt.Errorf("it takes %v for %v", v.Inputs[0].Shape, v.Shape)
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

// floats reports whether v and its inputs are all of one type that has kernels.
// The second input of a repetition is a count of any type.
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

// foldTranspose lets a product read a transposed matrix where it lies. It
// reports whether it changed input i.
func (v *Value) foldTranspose(i int) bool {
	in := v.Inputs[i]
	if in.Op.Kind != Transpose || len(in.Shape) != 2 || in.Op.Axes[0] != 1 {
		return false
	}
	v.Inputs[i] = in.Inputs[0]
	return true
}

// spread lets an elementwise operation read a repeated operand from before its
// repetition. Dimensions along which the operand was repeated get stride 0.
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

// joinTanhGradient computes (1 - y*y) * g in one instruction. Gorgonia makes
// three operations of the gradient of tanh. Another reader of y*y computes it
// for itself.
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

// unrepeated returns the value that v was repeated from, and its strides under
// shape. The strides are nil if v does not lie under shape.
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

// keepsOrder reports whether a permutation moves dimensions of size 1 only.
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

// fits reports whether the shapes are those that the operation's kernel
// computes with. to is the result's shape, from are the operands'.
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
	return len(o.Axes) == len(in) && size == 1 // At
}

// fitsElements is fits for operations whose result has the size of an operand.
func (o Op) fitsElements(to tensor.Shape, from []tensor.Shape) bool {
	size := memory.Elements(to)
	if o.Kind == Binary {
		a, b := memory.Elements(from[0]), memory.Elements(from[1])
		return max(a, b) == size && (a == size || a == 1) && (b == size || b == 1)
	}
	if o.Kind == SoftmaxGradient {
		from = from[1:] // the kernel does not read the softmax's operand
	}
	for _, s := range from {
		if memory.Elements(s) != size {
			return false
		}
	}
	return o.Kind != Softmax && o.Kind != SoftmaxGradient || o.softmaxAxis(to) >= 0
}

// fitsPieces is fits for operations that move pieces of their operands.
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

// Turned returns the sizes of a matrix after its transposition, if there is one.
func Turned(s []int, transposed bool) (rows, cols int) {
	if transposed {
		return s[1], s[0]
	}
	return s[0], s[1]
}

// Threefold cuts a shape at an axis: the number of outer pieces, the length
// along the axis, and the number of elements inside it.
func Threefold(shape []int, axis int) (outer, n, inner int) {
	return memory.Elements(shape[:axis]), shape[axis], memory.Elements(shape[axis+1:])
}

// Strides returns the strides of row-major order.
func Strides(shape []int) []int {
	s := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= shape[i]
	}
	return s
}

// softmaxAxis is the axis of a softmax. If the operation names none it is the
// axis that Gorgonia chooses; -1 means that there is no such axis.
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

// sliced is the number of elements of a slice of shape; -1 if the slice leaves
// the shape.
func (o Op) sliced(shape []int) int {
	outer, n, inner := Threefold(shape, o.Axes[0])
	if o.Step != 0 && o.End > n {
		return -1
	}
	return outer * o.SliceLength(n) * inner
}

// patches is the shape that Im2Col makes of images of shape (batch, channels,
// height, width).
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

// RepeatGeometry cuts a repetition at its axis: the number of elements inside
// the axis, and how often each of them is repeated. Dimensions that the operand
// lacks have size 1.
func RepeatGeometry(to, from tensor.Shape, along int) (inner, times int) {
	size := memory.Elements(from)
	times = memory.Elements(to) / size
	if size == 1 || along >= len(from) {
		return 1, times
	}
	return memory.Elements(from[along+1:]), times
}

// reduced is shape without the axes; without any dimension if no axis is named.
func reduced(shape, axes []int) []int {
	var s []int
	for i, d := range shape {
		if len(axes) > 0 && !slices.Contains(axes, i) {
			s = append(s, d)
		}
	}
	return s
}
