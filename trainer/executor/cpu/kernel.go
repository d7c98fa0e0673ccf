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

// kernel is a function that computes one value from its inputs.
type kernel func() error

// kernel returns the function that computes value v.
func (l *loader) kernel(v *compile.Value) (kernel, error) {
	if v.Op.Kind == compile.Other {
		return l.call(v)
	}
	var run func()
	switch {
	case v.Dtype == tensor.Float32:
		run = floatKernel[float32](l, v)
	case v.Dtype == tensor.Float64:
		run = floatKernel[float64](l, v)
	case v.Op.Kind == compile.Copy:
		to, from := l.bytes(v), l.bytes(v.Inputs[0])
		run = func() { copy(to, from) }
	default:
		return nil, fmt.Errorf("%s: there is no kernel for %v", v.Label(), v.Dtype)
	}
	return func() error {
		run()
		return nil
	}, nil
}

// floatKernel returns the function that computes v, a float32 or float64 value
// of an operation that this package implements.
func floatKernel[T float](l *loader, v *compile.Value) func() {
	out, in := cellOf[T](l, v), make([]*cell[T], len(v.Inputs))
	for i, x := range v.Inputs {
		if x.Dtype == v.Dtype {
			in[i] = cellOf[T](l, x)
		}
	}
	switch v.Op.Kind {
	case compile.Binary:
		if v.Op.Strides[0] != nil {
			return newSpread(v.Shape, v.Op.Strides, out, in[0], in[1], binaryLoops[T](v.Op.Code))
		}
		loops := binaryLoops[T](v.Op.Code)
		return func() { loops.run(out.data, in[0].data, in[1].data) }
	case compile.MinBetween:
		return func() { minVV(out.data, in[0].data, in[1].data) }
	case compile.MaxBetween:
		return func() { maxVV(out.data, in[0].data, in[1].data) }
	case compile.TanhGradient:
		return func() { tanhGradient(out.data, in[0].data, in[1].data) }
	case compile.Unary:
		loop := unaryLoop[T](v.Op.Code)
		return func() { loop(out.data, in[0].data) }
	case compile.Sum, compile.Max:
		return newReduction(v.Inputs[0].Shape, v.Op.Axes, v.Op.Kind == compile.Sum, out, in[0])
	case compile.Softmax:
		return newSoftmax(v, out, in[0], nil)
	case compile.SoftmaxGradient:
		return newSoftmax(v, out, in[1], in[2])
	case compile.Im2Col:
		return newPatches(v, in[0], out)
	case compile.Col2Im:
		return newPatches(v, out, in[0])
	case compile.MatMul, compile.BatchedMatMul:
		return newGemm(v, l.lib, out, in[0], in[1])
	case compile.MatVec:
		return newGemv(v, l.lib, out, in[0], in[1])
	case compile.Dot:
		return func() { out.data[0] = T(dot(in[0].data, in[1].data)) }
	case compile.Outer:
		return func() { outer(out.data, in[0].data, in[1].data) }
	}
	return newMove(v, out, in)
}

// newMove returns the kernel of an operation that only copies elements, such
// as Transpose.
func newMove[T float](v *compile.Value, out *cell[T], in []*cell[T]) func() {
	shape := v.Inputs[0].Shape
	switch v.Op.Kind {
	case compile.Copy:
		return func() { copy(out.data, in[0].data) }
	case compile.Repeat:
		inner, times := compile.RepeatGeometry(v.Shape, shape, v.Op.Axes[0])
		return func() { repeat(out.data, in[0].data, inner, times) }
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
		return func() { out.data[0] = in[0].data[at] }
	}
	panic(fmt.Sprintf("cpu: no kernel for kind %d", v.Op.Kind))
}

// prealloc is the Gorgonia interface of operations that can write their result
// into a given value.
type prealloc interface {
	UsePreallocDo(prealloc gorgonia.Value, inputs ...gorgonia.Value) (gorgonia.Value, error)
}

// foreign is an operation without a kernel of plx. It is called the way
// Gorgonia calls it, and its result is copied into the program's memory.
type foreign struct {
	op     gorgonia.Op
	to     []byte         // memory in which the compiled program expects the result
	out    gorgonia.Value // a Gorgonia value whose elements lie in the memory in field to
	inputs []gorgonia.Value
	reuse  bool // true if op may write its result into out: it implements prealloc and is not one of Gorgonia's own
}

func (k *foreign) run() error {
	var got gorgonia.Value
	var err error
	if k.reuse {
		clear(k.to) // some operations add to the previous contents of out
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

// call returns the kernel of an operation that this package does not
// implement. Gorgonia's own operations are called with Do and not with
// UsePreallocDo, because some of them write a wrong result into a given value.
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
		return func() error { return k.Run(out, inputs...) }, nil
	}
	_, reuse := op.(prealloc)
	reuse = reuse && !strings.HasPrefix(strings.TrimPrefix(fmt.Sprintf("%T", op), "*"), "gorgonia.")
	return (&foreign{op, l.bytes(v), out, inputs, reuse}).run, nil
}
