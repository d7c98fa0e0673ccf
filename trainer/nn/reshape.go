package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Flatten makes a matrix of x: one row for each element of the first axis.
func Flatten(x *gorgonia.Node) (*gorgonia.Node, error) {
	if _, err := floats("flatten", x); err != nil {
		return nil, err
	}
	s := x.Shape()
	if len(s) < 2 {
		return nil, fmt.Errorf("flatten: x is %s, want at least two axes", told(x))
	}
	return reshaped("flatten", x, tensor.Shape{s[0], elements(s[1:])})
}

func reshaped(what string, x *gorgonia.Node, shape tensor.Shape) (*gorgonia.Node, error) {
	o := &operation{
		what: what,
		out:  operand{dtype: x.Dtype(), shape: shape},
		run:  pick(x.Dtype(), copied[float32], copied[float64]),
	}
	o.diff = func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		return one(reshaped("gradient of "+what, dy, in[0].Shape()))
	}
	return o.apply(x)
}

func copied[T float](out gorgonia.Value, in []gorgonia.Value) error {
	copy(data[T](out), data[T](in[0]))
	return nil
}
