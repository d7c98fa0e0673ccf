package cpu

import (
	"errors"
	"fmt"
	"strings"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// kernel computes one value from its inputs.
type kernel interface{ run() error }

// kernel makes the kernel of one value. The memory of v and its inputs has been
// placed.
func (l *loader) kernel(v *compile.Value) (kernel, error) {
	if v.Op.Kind == compile.Other {
		return l.call(v)
	}
	switch v.Dtype {
	case tensor.Float32:
		return floatKernel[float32](l.lib, v, l.cells), nil
	case tensor.Float64:
		return floatKernel[float64](l.lib, v, l.cells), nil
	}
	if v.Op.Kind == compile.Copy {
		return &bytesCopy{to: l.bytes(v), from: l.bytes(v.Inputs[0])}, nil
	}
	return nil, fmt.Errorf("%s: there is no kernel for %v", v.Label(), v.Dtype)
}

// bytesCopy copies a value that is not of floats.
type bytesCopy struct{ to, from []byte }

func (k *bytesCopy) run() error {
	copy(k.to, k.from)
	return nil
}

func floatKernel[T float](lib gorgonia.BLAS, v *compile.Value, cells cells) kernel {
	out, in := cellOf[T](cells, v), make([]*cell[T], len(v.Inputs))
	for i, x := range v.Inputs {
		if x.Dtype == v.Dtype {
			in[i] = cellOf[T](cells, x)
		}
	}
	switch v.Op.Kind {
	case compile.Binary:
		if v.Op.Strides[0] != nil {
			return newSpread(v.Shape, v.Op.Strides, out, in[0], in[1], binaryLoops[T](v.Op.Code))
		}
		return &binary[T]{out, in[0], in[1], binaryLoops[T](v.Op.Code)}
	case compile.MinBetween:
		return &binary[T]{out, in[0], in[1], loops[T]{vv: minVV[T]}}
	case compile.MaxBetween:
		return &binary[T]{out, in[0], in[1], loops[T]{vv: maxVV[T]}}
	case compile.TanhGradient:
		return &tanhGradient[T]{out, in[0], in[1]}
	case compile.Unary:
		return &unary[T]{out, in[0], unaryLoop[T](v.Op.Code)}
	case compile.Sum, compile.Max:
		return newReduction(v.Inputs[0].Shape, v.Op.Axes, v.Op.Kind == compile.Sum, out, in[0])
	case compile.Softmax:
		return newSoftmax(v, out, in[0])
	case compile.SoftmaxGradient:
		return newSoftmaxGradient(v, out, in[1], in[2])
	case compile.Im2Col:
		return newPatches(v, in[0], out)
	case compile.Col2Im:
		return newPatches(v, out, in[0])
	case compile.MatMul, compile.BatchedMatMul:
		return newGemm(v, lib, out, in[0], in[1])
	case compile.MatVec:
		return newGemv(v, lib, out, in[0], in[1])
	case compile.Dot:
		return &dotProduct[T]{out, in[0], in[1]}
	case compile.Outer:
		return &outer[T]{out, in[0], in[1]}
	}
	return newMove(v, out, in)
}

// newMove makes the kernel of an operation that computes no new numbers.
func newMove[T float](v *compile.Value, out *cell[T], in []*cell[T]) kernel {
	shape := v.Inputs[0].Shape
	switch v.Op.Kind {
	case compile.Copy:
		return &copying[T]{out, in[0]}
	case compile.Repeat:
		inner, times := compile.RepeatGeometry(v.Shape, shape, v.Op.Axes[0])
		return &repeating[T]{out, in[0], inner, times}
	case compile.Transpose:
		return newPermuting(shape, v.Op.Axes, out, in[0])
	case compile.Slice:
		return newSlicing(v, in[0], out)
	case compile.SliceGradient:
		return newSlicing(v, out, in[1])
	case compile.Concat:
		return newConcat(v, out, in)
	case compile.At:
		at := 0
		for i, s := range compile.Strides(shape) {
			at += v.Op.Axes[i] * s
		}
		return &picking[T]{out, in[0], at}
	}
	panic(fmt.Sprintf("cpu: no kernel for kind %d", v.Op.Kind))
}

// prealloc is implemented by operations that can write into a given value.
type prealloc interface {
	UsePreallocDo(prealloc gorgonia.Value, inputs ...gorgonia.Value) (gorgonia.Value, error)
}

// ownKernel calls an operation that brings its kernel.
type ownKernel struct {
	op     operation.Kernel
	out    gorgonia.Value
	inputs []gorgonia.Value
}

func (k *ownKernel) run() error { return k.op.Run(k.out, k.inputs...) }

// foreign calls an operation the way Gorgonia does and copies its result.
type foreign struct {
	op     gorgonia.Op
	to     []byte
	out    gorgonia.Value
	inputs []gorgonia.Value
	reuse  bool // op implements prealloc and can be trusted with out
}

func (k *foreign) run() error {
	var got gorgonia.Value
	var err error
	if k.reuse {
		clear(k.to) // some operations add to the old contents
		got, err = k.op.(prealloc).UsePreallocDo(k.out, k.inputs...)
	} else {
		got, err = k.op.Do(k.inputs...)
	}
	if err != nil {
		return err
	}
	if got == nil {
		return errors.New("the operation returned no value")
	}
	if got == k.out {
		return nil
	}
	return memory.Copy(k.to, got)
}

// call makes the kernel of an operation that is not this package's. Gorgonia's
// own operations are called with Do: some of them leave a wrong result in
// memory that they are given.
func (l *loader) call(v *compile.Value) (kernel, error) {
	op := v.Node.Op()
	out, err := l.wrap(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.Label(), err)
	}
	inputs := make([]gorgonia.Value, len(v.Inputs))
	for i, in := range v.Inputs {
		if inputs[i], err = l.wrap(in); err != nil {
			return nil, fmt.Errorf("%s: input %d: %w", v.Label(), i, err)
		}
	}
	if k, ok := op.(operation.Kernel); ok {
		return &ownKernel{k, out, inputs}, nil
	}
	_, reuse := op.(prealloc)
	reuse = reuse && !strings.HasPrefix(strings.TrimPrefix(fmt.Sprintf("%T", op), "*"), "gorgonia.")
	return &foreign{op, l.bytes(v), out, inputs, reuse}, nil
}
