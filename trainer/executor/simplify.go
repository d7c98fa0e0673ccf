package executor

import (
	"fmt"
	"slices"

	"gorgonia.org/tensor"
)

// simplify brings a vertex into the form that its kernel takes: folds what
// needs no work, and gives operations that no kernel fits to kindOther.
func simplify(v *vertex) error {
	switch v.op.kind {
	case kindOther:
		return nil
	case kindAlias:
		if v.inputs[0].size() != v.size() || v.inputs[0].dtype != v.dtype {
			return fmt.Errorf("it takes %v for %v", v.inputs[0].shape, v.shape)
		}
		return nil
	}
	if !v.floats() || !fits(v) {
		return asOther(v)
	}
	switch v.op.kind {
	case kindBinary:
		spread(v)
		joinTanhDiff(v)
	case kindMatMul:
		foldTranspose(v, 0, &v.op.transA)
		foldTranspose(v, 1, &v.op.transB)
	case kindSum, kindMax, kindRepeat, kindSlice, kindSliceIncr, kindConcat:
		if v.inputs[0].size() == v.size() && len(v.inputs) == 1 ||
			v.op.kind == kindRepeat && v.inputs[0].size() == v.size() {
			v.op, v.inputs = operation{kind: kindAlias}, v.inputs[:1]
		}
	case kindTranspose:
		if keepsOrder(v.inputs[0].shape, v.op.axes) {
			v.op = operation{kind: kindAlias}
		}
	}
	return nil
}

// asOther leaves v to Gorgonia's own code.
func asOther(v *vertex) error {
	plain, err := vet(v.of)
	v.op = operation{kind: kindOther, plain: plain}
	return err
}

// floats tells whether v and its inputs are all of one type that there are
// kernels for. The second input of a repeat is a count of any type.
func (v *vertex) floats() bool {
	if v.dtype != tensor.Float32 && v.dtype != tensor.Float64 {
		return false
	}
	for i, in := range v.inputs {
		if in.dtype != v.dtype && !(v.op.kind == kindRepeat && i == 1) {
			return false
		}
	}
	return true
}

// foldTranspose lets a product read a transposed matrix where it lies.
func foldTranspose(v *vertex, i int, flag *bool) {
	in := v.inputs[i]
	if in.op.kind == kindTranspose && len(in.shape) == 2 && in.op.axes[0] == 1 {
		v.inputs[i] = in.inputs[0]
		*flag = !*flag
	}
}

// spread lets an elementwise operation read an operand that was repeated
// where it lies, as often as it was repeated: the dimensions along which it
// was get stride 0. Nothing is changed where neither operand was.
func spread(v *vertex) {
	if v.size() <= 1 {
		return
	}
	a, sa := unrepeated(v.inputs[0], v.shape)
	b, sb := unrepeated(v.inputs[1], v.shape)
	if a == v.inputs[0] && b == v.inputs[1] || sa == nil || sb == nil {
		return
	}
	v.inputs = []*vertex{a, b}
	v.op.strides = [2][]int{sa, sb}
}

// joinTanhDiff computes (1 - y*y) * g, which is what Gorgonia makes of the
// gradient of tanh, at one go. Whoever else wants y*y computes it for itself.
func joinTanhDiff(v *vertex) {
	if v.op.code != "⊙" || v.op.strides[0] != nil {
		return
	}
	minus, g := v.inputs[0], v.inputs[1]
	if minus.op.kind != kindBinary || minus.op.code != "-" || minus.size() != v.size() || g.size() != v.size() || !minus.inputs[0].isOne() {
		return
	}
	square := minus.inputs[1]
	if square.op.kind != kindBinary || square.op.code != "⊙" || square.inputs[0] != square.inputs[1] || square.size() != v.size() {
		return
	}
	v.op, v.inputs = operation{kind: kindTanhDiff}, []*vertex{square.inputs[0], g}
}

// isOne tells whether v is the constant 1.
func (v *vertex) isOne() bool {
	if v.op.kind != kindConstant || v.size() != 1 {
		return false
	}
	if v.dtype == tensor.Float32 {
		return view[float32](v.bytes)[0] == 1
	}
	return v.dtype == tensor.Float64 && view[float64](v.bytes)[0] == 1
}

// unrepeated is what in was repeated from, and its strides under shape; nil
// strides where in does not lie under shape.
func unrepeated(in *vertex, shape tensor.Shape) (*vertex, []int) {
	if in.size() == 1 {
		return in, make([]int, len(shape))
	}
	if !slices.Equal(in.shape, shape) {
		return in, nil
	}
	zero := make([]bool, len(shape))
	for in.op.kind == kindRepeat && !in.constant {
		from, along := in.inputs[0], in.op.axes[0]
		if from.size() == 1 {
			return from, make([]int, len(shape))
		}
		if len(from.shape) != len(shape) || from.shape[along] != 1 {
			break
		}
		zero[along] = true
		in = from
	}
	strides := strided(in.shape)
	for i := range strides {
		if zero[i] {
			strides[i] = 0
		}
	}
	return in, strides
}

// strided are the strides of row-major order.
func strided(shape []int) []int {
	s := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= shape[i]
	}
	return s
}

// keepsOrder tells whether a permutation moves dimensions of size 1 only.
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

// reduced is shape without the axes; of all axes where none is named.
func reduced(shape, axes []int) []int {
	var s []int
	for i, d := range shape {
		if len(axes) > 0 && !slices.Contains(axes, i) {
			s = append(s, d)
		}
	}
	return s
}
