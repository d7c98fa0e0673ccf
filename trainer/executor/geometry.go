package executor

import "gorgonia.org/tensor"

// threefold cuts shape at axis: how many outer pieces, the length along the
// axis, and the length of what lies inside.
func threefold(shape []int, axis int) (outer, n, inner int) {
	return elements(shape[:axis]), shape[axis], elements(shape[axis+1:])
}

// softAxis is the axis of a softmax, chosen as Gorgonia does where none was
// named; -1 where there is no such axis, and 0 for other operations.
func softAxis(v *vertex) int {
	if v.op.kind != kindSoftMax && v.op.kind != kindSoftMaxDiff {
		return 0
	}
	axis, s := v.op.axes[0], v.shape
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

// sliced is how many elements a slice of shape has; -1 where it leaves it.
func sliced(shape []int, o operation) int {
	outer, n, inner := threefold(shape, o.axes[0])
	if o.step != 0 && o.end > n {
		return -1
	}
	return outer * sliceLength(o, n) * inner
}

// sliceLength is the length of a slice along its axis of length n.
func sliceLength(o operation, n int) int {
	if o.step == 0 {
		return n
	}
	return (o.end - o.start + o.step - 1) / o.step
}

// columns is the shape that im2col makes of images of shape (batch, channels,
// height, width).
func columns(s tensor.Shape, w []int) tensor.Shape {
	h := (s[2]+2*w[2]-(w[6]*(w[0]-1)+1))/w[4] + 1
	width := (s[3]+2*w[3]-(w[7]*(w[1]-1)+1))/w[5] + 1
	return tensor.Shape{s[0], h, width, s[1] * w[0] * w[1]}
}

func fitsConcat(v *vertex) bool {
	axis, total := v.op.axes[0], 0
	if axis >= len(v.shape) {
		return false
	}
	outer, n, inner := threefold(v.shape, axis)
	for _, in := range v.inputs {
		if len(in.shape) != len(v.shape) {
			return false
		}
		o, m, i := threefold(in.shape, axis)
		if o != outer || i != inner {
			return false
		}
		total += m
	}
	return total == n
}

// repeats tells whether v is its first input repeated along one axis, every
// element next to its copies.
func repeats(v *vertex) bool {
	outer, n, inner, times := repeatGeometry(v)
	return outer*n*inner == v.inputs[0].size() && outer*n*inner*times == v.size() && times > 0
}

// repeatGeometry cuts a repeat at its axis. Dimensions that the input lacks
// have size 1.
func repeatGeometry(v *vertex) (outer, n, inner, times int) {
	from, along := v.inputs[0].shape, v.op.axes[0]
	times = v.size() / v.inputs[0].size()
	if v.inputs[0].size() == 1 || along >= len(from) {
		return v.inputs[0].size(), 1, 1, times
	}
	outer, n, inner = threefold(from, along)
	return outer, n, inner, times
}
