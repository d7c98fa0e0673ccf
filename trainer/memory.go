package trainer

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/wire"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// newLike returns a zero value of n's type and shape, and its memory.
func newLike(n *gorgonia.Node) (gorgonia.Value, []byte, error) {
	var v gorgonia.Value
	switch dt := n.Dtype(); {
	case dt != tensor.Float32 && dt != tensor.Float64:
		return nil, nil, fmt.Errorf("%q is %v, want float32 or float64", n.Name(), dt)
	case !n.IsScalar():
		v = tensor.New(tensor.Of(dt), tensor.WithShape(n.Shape()...))
	case dt == tensor.Float32:
		v = gorgonia.NewF32(0)
	default:
		v = gorgonia.NewF64(0)
	}
	b, ok := rowMajor(v)
	if !ok {
		panic("trainer: a new tensor is not row-major")
	}
	return v, b, nil
}

// rowMajor returns v's memory, not a copy, when its elements lie in
// row-major order without gaowner.
func rowMajor(v gorgonia.Value) ([]byte, bool) {
	switch v := v.(type) {
	case *gorgonia.F32:
		return wire.Bytes(unsafe.Slice((*float32)(v), 1)), true
	case *gorgonia.F64:
		return wire.Bytes(unsafe.Slice((*float64)(v), 1)), true
	case *tensor.Dense:
		if v.RequiresIterator() || v.DataOrder().IsColMajor() {
			return nil, false
		}
		switch data := v.Data().(type) {
		case []float32:
			return wire.Bytes(data), true
		case []float64:
			return wire.Bytes(data), true
		}
	}
	return nil, false
}

// copyInto copies v's elements to row-major memory, whatever order they lie
// in.
func copyInto(to []byte, v gorgonia.Value) error {
	if from, ok := rowMajor(v); ok {
		if len(from) != len(to) {
			return fmt.Errorf("%d bytes, want %d", len(from), len(to))
		}
		copy(to, from)
		return nil
	}
	dense, ok := v.(*tensor.Dense)
	if !ok {
		return fmt.Errorf("cannot read a %T", v)
	}
	switch data := dense.Data().(type) {
	case float32: // a tensor without dimensions
		return copyInto(to, gorgonia.NewF32(data))
	case float64:
		return copyInto(to, gorgonia.NewF64(data))
	case []float32:
		return gather(wire.Floats[float32](to), data, dense)
	case []float64:
		return gather(wire.Floats[float64](to), data, dense)
	}
	return fmt.Errorf("cannot read a tensor of %v", dense.Dtype())
}

// gather follows v's strides, last dimension fastest.
func gather[T wire.Float](to, data []T, v *tensor.Dense) error {
	shape, strides := v.Shape(), v.Strides()
	if len(strides) != len(shape) || shape.TotalSize() != len(to) {
		return fmt.Errorf("cannot read a tensor of shape %v with strides %v", shape, strides)
	}
	index := make([]int, len(shape))
	for i := range to {
		at := 0
		for d, k := range index {
			at += k * strides[d]
		}
		to[i] = data[at]
		for d := len(index) - 1; d >= 0; d-- {
			if index[d]++; index[d] < shape[d] {
				break
			}
			index[d] = 0
		}
	}
	return nil
}

// tensorOf copies a variable's memory to a tensor, one without dimensions
// for a scalar.
func tensorOf(v owner.Variable, memory []byte) *tensor.Dense {
	if v.Dtype == owner.Float32 {
		return tensorFrom(v.Shape, wire.Floats[float32](memory))
	}
	return tensorFrom(v.Shape, wire.Floats[float64](memory))
}

func tensorFrom[T wire.Float](shape []int, data []T) *tensor.Dense {
	if len(shape) == 0 {
		return tensor.New(tensor.FromScalar(data[0]))
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(slices.Clone(data)))
}

// declared describes a variable to its owner.
func declared(n *gorgonia.Node) (owner.Variable, error) {
	v := owner.Variable{Name: n.Name(), Dtype: owner.Dtype(n.Dtype().String()), Shape: []int{}}
	if !n.IsScalar() {
		v.Shape = append(v.Shape, n.Shape()...)
	}
	_, err := v.Elements()
	return v, err
}

// number reads a scalar.
func number(v gorgonia.Value) (float64, error) {
	switch v.Dtype() {
	case tensor.Float32:
		var x [1]float32
		err := copyInto(wire.Bytes(x[:]), v)
		return float64(x[0]), err
	case tensor.Float64:
		var x [1]float64
		err := copyInto(wire.Bytes(x[:]), v)
		return x[0], err
	}
	return 0, fmt.Errorf("the loss is no number but %T", v)
}
