package nn

import (
	"math"

	"gorgonia.org/gorgonia"
)

// Relu is the larger of x and 0, element by element. Its gradient at 0 is 0.
// NaN stays NaN.
func Relu(x *gorgonia.Node) (*gorgonia.Node, error) {
	return newActivation("relu", x, relu[float32], relu[float64], reluGradient[float32], reluGradient[float64])
}

// Sigmoid is 1 / (1 + exp(-x)), element by element.
func Sigmoid(x *gorgonia.Node) (*gorgonia.Node, error) {
	return newActivation("sigmoid", x, sigmoid[float32], sigmoid[float64], sigmoidGradient[float32], sigmoidGradient[float64])
}

// Tanh is the hyperbolic tangent, element by element.
func Tanh(x *gorgonia.Node) (*gorgonia.Node, error) {
	return newActivation("tanh", x, tanh[float32], tanh[float64], tanhGradient[float32], tanhGradient[float64])
}

// newActivation makes an operation on elements. Its gradient is computed from
// its result y and the gradient dy of y.
func newActivation(what string, x *gorgonia.Node, run32, run64, diff32, diff64 kernel) (*gorgonia.Node, error) {
	dtype, err := floats(what, x)
	if err != nil {
		return nil, err
	}
	out := operand{dtype: dtype, shape: x.Shape()}
	o := &op{what: what, out: out, run: pick(dtype, run32, run64)}
	o.diff = func(_ gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		d := &op{what: "gradient of " + what, out: out, run: pick(dtype, diff32, diff64)}
		return one(d.apply(y, dy))
	}
	return o.apply(x)
}

func relu[T float](out gorgonia.Value, in []gorgonia.Value) error {
	y := data[T](out)
	for i, v := range data[T](in[0]) {
		y[i] = max(v, 0)
	}
	return nil
}

func reluGradient[T float](out gorgonia.Value, in []gorgonia.Value) error {
	dx, dy := data[T](out), data[T](in[1])
	for i, v := range data[T](in[0]) {
		keep := byte(0)
		if v > 0 {
			keep = 1
		}
		dx[i] = masked(dy[i], keep)
	}
	return nil
}

func sigmoid[T float](out gorgonia.Value, in []gorgonia.Value) error {
	y := data[T](out)
	for i, v := range data[T](in[0]) {
		y[i] = T(1 / (1 + math.Exp(-float64(v))))
	}
	return nil
}

func sigmoidGradient[T float](out gorgonia.Value, in []gorgonia.Value) error {
	dx, dy := data[T](out), data[T](in[1])
	for i, v := range data[T](in[0]) {
		dx[i] = dy[i] * (v * (1 - v))
	}
	return nil
}

func tanh[T float](out gorgonia.Value, in []gorgonia.Value) error {
	y := data[T](out)
	for i, v := range data[T](in[0]) {
		y[i] = T(math.Tanh(float64(v)))
	}
	return nil
}

func tanhGradient[T float](out gorgonia.Value, in []gorgonia.Value) error {
	dx, dy := data[T](out), data[T](in[1])
	for i, v := range data[T](in[0]) {
		dx[i] = dy[i] * (1 - T(v*v))
	}
	return nil
}
