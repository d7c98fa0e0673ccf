package gpu

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/tensor"
)

// arguments returns the inputs that the GPU kernel of instruction v reads, in
// the order of the kernel's operands.
func arguments(v *compile.Value) []*compile.Value {
	switch v.Op.Kind {
	case compile.Repeat:
		return v.Inputs[:1] // the second input is the number of repetitions, which the shapes already determine
	case compile.SliceGradient:
		return v.Inputs[1:2] // the first input only gives the shape of the result
	case compile.SoftmaxGradient:
		return v.Inputs[1:3] // the kernel does not read the first input, the softmax's operand
	}
	g := onGPU(v)
	if g == nil || g.Inputs == nil {
		return v.Inputs
	}
	var all []*compile.Value
	for _, i := range g.Inputs(g.Train()) {
		all = append(all, v.Inputs[i])
	}
	return all
}

// onGPU returns how the GPU computes an operation that is not Gorgonia's own.
// It returns nil if the operation does not implement operation.OnGPU.
func onGPU(v *compile.Value) *operation.GPU {
	if v.Op.Kind != compile.Other {
		return nil
	}
	if o, ok := v.Node.Op().(operation.OnGPU); ok {
		return o.GPU()
	}
	return nil
}

// random reports whether an instruction draws random numbers, as dropout does.
func random(v *compile.Value) bool {
	g := onGPU(v)
	return g != nil && g.Stream != nil
}

// kernelsOf returns the GPU kernels of an instruction. The error gives the
// reason if there are none.
func kernelsOf(v *compile.Value) (kernels.Operation, error) {
	t := kernels.Float32
	switch v.Dtype {
	case tensor.Float32:
	case tensor.Float64:
		t = kernels.Float64
	default:
		return kernels.Operation{}, fmt.Errorf("no kernel for %v", v.Dtype)
	}
	switch v.Op.Kind {
	case compile.Other:
		if g := onGPU(v); g != nil {
			return g.Kernels(t, g.Train())
		}
		return kernels.Operation{}, errors.New("no kernel")
	case compile.Binary, compile.MinBetween, compile.MaxBetween, compile.TanhGradient, compile.Unary, compile.Copy:
		return elementwise(t, v)
	case compile.Repeat, compile.Transpose, compile.Slice, compile.SliceGradient, compile.Concat, compile.At:
		return move(t, v)
	case compile.MatMul, compile.BatchedMatMul, compile.MatVec, compile.Dot, compile.Outer:
		return product(t, v)
	case compile.Sum:
		return kernels.Sum(t, v.Inputs[0].Shape, v.Op.Axes)
	case compile.Max:
		return kernels.Max(t, v.Inputs[0].Shape, v.Op.Axes)
	case compile.Softmax, compile.SoftmaxGradient:
		outer, n, inner := compile.Threefold(v.Shape, v.Op.Axes[0])
		if v.Op.Kind == compile.Softmax {
			return kernels.Softmax(t, outer, n, inner, v.Op.Log)
		}
		return kernels.SoftmaxGradient(t, outer, n, inner, v.Op.Log)
	}
	return kernels.Operation{}, errors.New("no kernel")
}

// product returns the kernels of a product of matrices or vectors.
func product(t kernels.Type, v *compile.Value) (kernels.Operation, error) {
	a, b := v.Inputs[0].Shape, v.Inputs[1].Shape
	switch v.Op.Kind {
	case compile.MatVec:
		return kernels.MatVec(t, a[0], a[1], v.Op.TransA)
	case compile.Dot:
		return kernels.Dot(t, v.Inputs[0].Size())
	case compile.Outer:
		return kernels.Outer(t, v.Inputs[0].Size(), v.Inputs[1].Size())
	}
	d := len(a) - 2
	m, k := compile.Turned(a[d:], v.Op.TransA)
	_, n := compile.Turned(b[d:], v.Op.TransB)
	return kernels.Product(t, kernels.Matrices{Count: memory.Elements(a[:d]), M: m, N: n, K: k, TransA: v.Op.TransA, TransB: v.Op.TransB})
}

func elementwise(t kernels.Type, v *compile.Value) (kernels.Operation, error) {
	binary := func(code string) (kernels.Operation, error) {
		return kernels.Binary(t, code, v.Size(), v.Inputs[0].Size(), v.Inputs[1].Size())
	}
	switch v.Op.Kind {
	case compile.MinBetween:
		return binary("min")
	case compile.MaxBetween:
		return binary("max")
	case compile.TanhGradient:
		return binary("tanh gradient")
	case compile.Unary:
		return kernels.Unary(t, v.Op.Code, v.Size())
	case compile.Copy:
		return kernels.Copy(t, v.Size())
	}
	if s := v.Op.Strides; s[0] != nil {
		return kernels.Spread(t, v.Op.Code, v.Shape, s[0], s[1])
	}
	return binary(v.Op.Code)
}

// move returns the kernels of an operation that only copies elements, such as
// Transpose or Concat.
func move(t kernels.Type, v *compile.Value) (kernels.Operation, error) {
	shape, o := v.Inputs[0].Shape, v.Op
	switch o.Kind {
	case compile.Repeat:
		inner, times := compile.RepeatGeometry(v.Shape, shape, o.Axes[0])
		return kernels.Repeat(t, v.Size()/max(1, inner*times), inner, times)
	case compile.Transpose:
		return kernels.Transpose(t, shape, o.Axes)
	case compile.Slice:
		start, end, step := bounds(o, shape)
		return kernels.Slice(t, shape, o.Axes[0], start, end, step)
	case compile.SliceGradient:
		start, end, step := bounds(o, v.Shape)
		return kernels.SliceGradient(t, v.Shape, o.Axes[0], start, end, step)
	case compile.Concat:
		var middle []int
		outer, inner := 1, 1
		for _, in := range v.Inputs {
			var n int
			outer, n, inner = compile.Threefold(in.Shape, o.Axes[0])
			middle = append(middle, n)
		}
		return kernels.Concat(t, outer, inner, middle...)
	}
	at := 0
	for i, s := range compile.Strides(shape) {
		at += o.Axes[i] * s
	}
	return kernels.At(t, at)
}

// bounds returns start, end and step of a slice. In an operation with step 0,
// the slice is the whole axis.
func bounds(o compile.Op, shape tensor.Shape) (start, end, step int) {
	if o.Step == 0 {
		return 0, shape[o.Axes[0]], 1
	}
	return o.Start, o.End, o.Step
}
