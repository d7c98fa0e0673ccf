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

// Softmax is exp(x) / sum(exp(x)) over the last axis. It does not overflow, as
// Gorgonia's does.
func Softmax(x *gorgonia.Node) (*gorgonia.Node, error) {
	return newRowwise("softmax", x, softmax[float32], softmax[float64], softmaxGradient[float32], softmaxGradient[float64])
}

// LogSoftmax is the logarithm of Softmax, computed directly.
func LogSoftmax(x *gorgonia.Node) (*gorgonia.Node, error) {
	return newRowwise("log softmax", x, logSoftmax[float32], logSoftmax[float64], logSoftmaxGradient[float32], logSoftmaxGradient[float64])
}

// newRowwise makes an operation on rows whose gradient follows from its result.
// The kernels get scratch memory for a row.
func newRowwise(what string, x *gorgonia.Node, run32, run64, diff32, diff64 func([]float64) kernel) (*gorgonia.Node, error) {
	dtype, err := floats(what, x)
	if err != nil {
		return nil, err
	}
	s, classes := x.Shape(), 1
	if len(s) > 0 {
		classes = s[len(s)-1]
	}
	out := operand{dtype: dtype, shape: s}
	o := &op{what: what, out: out, run: choose(dtype, run32, run64, make([]float64, classes))}
	o.diff = func(_ gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		d := &op{what: "gradient of " + what, out: out, run: choose(dtype, diff32, diff64, make([]float64, classes))}
		return one(d.apply(y, dy))
	}
	return o.apply(x)
}

func softmax[T float](exp []float64) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		y, x, n := data[T](out), data[T](in[0]), len(exp)
		for ; len(x) > 0; x, y = x[n:], y[n:] {
			_, sum := exponentials(exp, x[:n])
			for i, v := range exp {
				y[i] = T(v / sum)
			}
		}
		return nil
	}
}

// softmaxGradient is y (dy - sum(dy y)).
func softmaxGradient[T float](scratch []float64) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		dx, y, dy, n := data[T](out), data[T](in[0]), data[T](in[1]), len(scratch)
		for ; len(y) > 0; dx, y, dy = dx[n:], y[n:], dy[n:] {
			sum := 0.0
			for i := range n {
				sum += float64(float64(dy[i]) * float64(y[i]))
			}
			for i := range n {
				dx[i] = T(float64(y[i]) * (float64(dy[i]) - sum))
			}
		}
		return nil
	}
}

func logSoftmax[T float](exp []float64) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		y, x, n := data[T](out), data[T](in[0]), len(exp)
		for ; len(x) > 0; x, y = x[n:], y[n:] {
			largest, sum := exponentials(exp, x[:n])
			log := math.Log(sum)
			for i, v := range x[:n] {
				y[i] = T((float64(v) - largest) - log)
			}
		}
		return nil
	}
}

// logSoftmaxGradient is dy - exp(y) sum(dy).
func logSoftmaxGradient[T float](scratch []float64) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		dx, y, dy, n := data[T](out), data[T](in[0]), data[T](in[1]), len(scratch)
		for ; len(y) > 0; dx, y, dy = dx[n:], y[n:], dy[n:] {
			sum := 0.0
			for _, d := range dy[:n] {
				sum += float64(d)
			}
			for i := range n {
				dx[i] = T(float64(dy[i]) - float64(math.Exp(float64(y[i]))*sum))
			}
		}
		return nil
	}
}
