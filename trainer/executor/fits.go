package executor

import "slices"

// fits tells whether the shapes are those that v's kernel computes with.
func fits(v *vertex) bool {
	in := v.inputs
	switch v.op.kind {
	case kindBinary:
		return len(in) == 2 && max(in[0].size(), in[1].size()) == v.size() &&
			(in[0].size() == v.size() || in[0].size() == 1) && (in[1].size() == v.size() || in[1].size() == 1)
	case kindUnary, kindSoftMax:
		return len(in) == 1 && in[0].size() == v.size() && softAxis(v) >= 0
	case kindMinBetween, kindMaxBetween:
		return len(in) == 2 && in[0].size() == v.size() && in[1].size() == v.size()
	case kindSoftMaxDiff:
		return len(in) == 3 && in[1].size() == v.size() && in[2].size() == v.size() && softAxis(v) >= 0
	case kindSum, kindMax:
		return len(in) == 1 && v.size() == elements(reduced(in[0].shape, v.op.axes))
	case kindRepeat:
		return len(in) == 2 && in[0].size() > 0 && v.size()%in[0].size() == 0 && repeats(v)
	case kindTranspose:
		return len(in) == 1 && len(v.op.axes) == len(in[0].shape) && v.size() == in[0].size()
	case kindAt:
		return len(in) == 1 && len(v.op.axes) == len(in[0].shape) && v.size() == 1
	}
	return fitsPieces(v)
}

func fitsPieces(v *vertex) bool {
	in := v.inputs
	switch v.op.kind {
	case kindSlice:
		return len(in) == 1 && v.op.axes[0] < len(in[0].shape) && sliced(in[0].shape, v.op) == v.size()
	case kindSliceIncr:
		return len(in) == 2 && in[0].size() == v.size() && v.op.axes[0] < len(v.shape) && sliced(v.shape, v.op) == in[1].size()
	case kindConcat:
		return fitsConcat(v)
	case kindIm2Col:
		return len(in) == 1 && len(in[0].shape) == 4 && len(v.shape) == 4 && len(v.op.window) == 8 && slices.Equal(v.shape, columns(in[0].shape, v.op.window))
	case kindCol2Im:
		return len(in) == 1 && len(in[0].shape) == 4 && len(v.shape) == 4 && len(v.op.window) == 8 && slices.Equal(in[0].shape, columns(v.shape, v.op.window))
	}
	return fitsProduct(v)
}

func fitsProduct(v *vertex) bool {
	if len(v.inputs) != 2 {
		return false
	}
	a, b := v.inputs[0].shape, v.inputs[1].shape
	switch v.op.kind {
	case kindDot:
		return elements(a) == elements(b) && v.size() == 1
	case kindOuter:
		return elements(a)*elements(b) == v.size()
	case kindMatVec:
		if len(a) != 2 {
			return false
		}
		m, k := turned(a, v.op.transA)
		return elements(b) == k && v.size() == m
	case kindMatMul, kindBatchedMatMul:
		n := len(a) - 2
		if n < 0 || len(b) != len(a) || len(v.shape) != len(a) || !slices.Equal(a[:n], b[:n]) || v.op.kind == kindMatMul && n != 0 {
			return false
		}
		m, k := turned(a[n:], v.op.transA)
		k2, c := turned(b[n:], v.op.transB)
		return k == k2 && v.size() == elements(a[:n])*m*c
	}
	return false
}

// turned is the shape of a matrix after its transposition, if any.
func turned(s []int, trans bool) (rows, cols int) {
	if trans {
		return s[1], s[0]
	}
	return s[0], s[1]
}
