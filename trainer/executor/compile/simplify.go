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
	if !v.floats() || !v.Op.fits(v.Shape, shapesOf(v.Inputs)) {
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
		v.Op = v.Op.turned(v.foldTranspose(0), v.foldTranspose(1))
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

func shapesOf(vs []*Value) []tensor.Shape {
	s := make([]tensor.Shape, len(vs))
	for i, v := range vs {
		s[i] = v.Shape
	}
	return s
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
	v.Op = v.Op.strided(sa, sb)
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
	last := -1
	for _, a := range axes {
		if a < 0 || a >= len(shape) {
			return false
		}
		if shape[a] != 1 {
			if a < last {
				return false
			}
			last = a
		}
	}
	return true
}
