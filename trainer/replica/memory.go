package replica

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/memory"
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
	b, ok := RowMajor(v)
	if !ok {
		panic("replica: a new tensor is not row-major")
	}
	return v, b, nil
}

// RowMajor returns v's memory, not a copy. ok is false unless its elements are
// floats in row-major order without gaps.
func RowMajor(v gorgonia.Value) (b []byte, ok bool) {
	if dt := v.Dtype(); dt != tensor.Float32 && dt != tensor.Float64 {
		return nil, false
	}
	if dense, ok := v.(*tensor.Dense); ok && dense.Dims() == 0 {
		return nil, false // a tensor without dimensions gives copies only
	}
	return memory.Raw(v)
}

// bind gives every kept variable memory of plx's own: what a node holds may be
// shared with another graph.
func (m Model) bind(values []gorgonia.Value) ([]gorgonia.Value, error) {
	fresh, kept := values == nil, m.kept()
	if !fresh && len(values) != len(kept) {
		return nil, fmt.Errorf("Build made %d variables, the first time %d", len(kept), len(values))
	}
	for i, n := range kept {
		if fresh {
			v, into, err := newLike(n)
			if err != nil {
				return nil, fmt.Errorf("variable: %w", err)
			}
			if err := memory.Copy(into, n.Value()); err != nil {
				return nil, fmt.Errorf("variable %q: first value: %w", n.Name(), err)
			}
			values = append(values, v)
		}
		if !n.Shape().Eq(values[i].Shape()) {
			return nil, fmt.Errorf("variable %q has shape %v, the first time %v", n.Name(), n.Shape(), values[i].Shape())
		}
	}
	return values, nil
}

// number reads a scalar.
func number(v gorgonia.Value) (float64, error) {
	switch v.Dtype() {
	case tensor.Float32:
		var x [1]float32
		err := memory.Copy(wire.Bytes(x[:]), v)
		return float64(x[0]), err
	case tensor.Float64:
		var x [1]float64
		err := memory.Copy(wire.Bytes(x[:]), v)
		return x[0], err
	}
	return 0, fmt.Errorf("the loss is no number but %T", v)
}
