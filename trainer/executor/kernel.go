package executor

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// kernel computes the value of one vertex from those of its inputs.
type kernel interface{ run() error }

// newKernel makes v's kernel. Memory of v and its inputs is planned.
func newKernel(v *vertex, lib gorgonia.BLAS) (kernel, error) {
	if v.op.kind == kindOther {
		return newCall(v)
	}
	switch v.dtype {
	case tensor.Float32:
		return floatKernel[float32](v, lib), nil
	case tensor.Float64:
		return floatKernel[float64](v, lib), nil
	}
	if v.op.kind == kindCopy {
		return &bytesCopy{to: v, from: v.inputs[0].root}, nil
	}
	return nil, fmt.Errorf("%s: there is no kernel for %v", v.label(), v.dtype)
}

// bytesCopy is a copy of a value that is not of floats.
type bytesCopy struct{ to, from *vertex }

func (k *bytesCopy) run() error {
	copy(k.to.bytes, k.from.bytes)
	return nil
}

// cell is where v lies.
func cell[T float](v *vertex) *memory[T] {
	r := v.root
	if r.cell == nil {
		r.cell = &memory[T]{data: view[T](r.bytes)}
	}
	return r.cell.(*memory[T])
}

func floatKernel[T float](v *vertex, lib gorgonia.BLAS) kernel {
	out, in := cell[T](v), make([]*memory[T], len(v.inputs))
	for i, x := range v.inputs {
		if x.dtype == v.dtype {
			in[i] = cell[T](x)
		}
	}
	switch v.op.kind {
	case kindCopy:
		return &copying[T]{out, in[0]}
	case kindBinary:
		if v.op.strides[0] != nil {
			return newSpread(v.shape, v.op.strides, out, in[0], in[1], binaryLoops[T](v.op.code))
		}
		return &binary[T]{out, in[0], in[1], binaryLoops[T](v.op.code)}
	case kindMinBetween:
		return &binary[T]{out, in[0], in[1], loops[T]{vv: minVV[T]}}
	case kindMaxBetween:
		return &binary[T]{out, in[0], in[1], loops[T]{vv: maxVV[T]}}
	case kindTanhDiff:
		return &tanhDiff[T]{out, in[0], in[1]}
	case kindUnary:
		return &unary[T]{out, in[0], unaryLoop[T](v.op.code)}
	case kindSum, kindMax:
		return newReduction(v.inputs[0].shape, v.op.axes, v.op.kind == kindSum, out, in[0])
	case kindSoftMax:
		return newSoftmax(v, out, in[0])
	case kindSoftMaxDiff:
		return newSoftmaxDiff(v, out, in[1], in[2])
	case kindIm2Col:
		return newPatches(v, in[0], out)
	case kindCol2Im:
		return newPatches(v, out, in[0])
	}
	return moveKernel(v, lib, out, in)
}

func moveKernel[T float](v *vertex, lib gorgonia.BLAS, out *memory[T], in []*memory[T]) kernel {
	switch v.op.kind {
	case kindMatMul, kindBatchedMatMul:
		return newGemm(v, lib, out, in[0], in[1])
	case kindMatVec:
		return newGemv(v, lib, out, in[0], in[1])
	case kindDot:
		return &dotProduct[T]{out, in[0], in[1]}
	case kindOuter:
		return &outer[T]{out, in[0], in[1]}
	case kindRepeat:
		_, _, inner, times := repeatGeometry(v)
		return &repeating[T]{out, in[0], inner, times}
	case kindTranspose:
		return newPermuting(v.inputs[0].shape, v.op.axes, out, in[0])
	case kindSlice:
		return newSlicing(v, in[0], out)
	case kindSliceIncr:
		return newSlicing(v, out, in[1])
	case kindConcat:
		return newConcat(v, out, in)
	case kindAt:
		at := 0
		for i, s := range strided(v.inputs[0].shape) {
			at += v.op.axes[i] * s
		}
		return &picking[T]{out, in[0], at}
	}
	panic("executor: no kernel for " + v.op.kind.String())
}
