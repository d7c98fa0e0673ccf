package ops

import (
	"math"

	gpu "github.com/plx-run/plx/trainer/executor/gpu/kernels"

	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
)

// Relu returns max(x, 0) for each element of x. Its gradient at 0 is 0. NaN
// stays NaN.
func Relu(x *gorgonia.Node) (*gorgonia.Node, error) {
	return newActivation("relu", x, kernels[none]{relu[float32], relu[float64], reluGradient[float32], reluGradient[float64], true, activation("relu")})
}

// Sigmoid returns 1 / (1 + exp(-x)) for each element of x.
func Sigmoid(x *gorgonia.Node) (*gorgonia.Node, error) {
	return newActivation("sigmoid", x, kernels[none]{sigmoid[float32], sigmoid[float64], sigmoidGradient[float32], sigmoidGradient[float64], true, activation("sigmoid")})
}

// Tanh returns the hyperbolic tangent of each element of x.
func Tanh(x *gorgonia.Node) (*gorgonia.Node, error) {
	return newActivation("tanh", x, kernels[none]{tanh[float32], tanh[float64], tanhGradient[float32], tanhGradient[float64], true, activation("tanh")})
}

// activation returns a function that selects the GPU kernel of an elementwise
// operation, or of its gradient. code is the name of the kernel.
func activation(code string) func(int, bool) *operation.GPU {
	return func(n int, gradient bool) *operation.GPU {
		return by(func(t gpu.Type) (gpu.Operation, error) {
			if gradient {
				return gpu.Binary(t, "nn."+code+" gradient", n, n, n)
			}
			return gpu.Unary(t, "nn."+code, n)
		})
	}
}

// newActivation adds an elementwise operation to the graph. Its gradient is
// computed from the operation's result y and the gradient dy of y.
func newActivation(what string, x *gorgonia.Node, k kernels[none]) (*gorgonia.Node, error) {
	if _, err := floats(what, x); err != nil {
		return nil, err
	}
	return k.apply(what, none{}, x, x.Shape())
}

func relu[T float](_ none, y []T, in [][]T) {
	for i, v := range in[0] {
		y[i] = max(v, 0)
	}
}

func reluGradient[T float](_ none, dx []T, in [][]T) {
	dy := in[1]
	for i, v := range in[0] {
		keep := byte(0)
		if v > 0 {
			keep = 1
		}
		dx[i] = masked(dy[i], keep)
	}
}

func sigmoid[T float](_ none, y []T, in [][]T) {
	for i, v := range in[0] {
		y[i] = T(1 / (1 + math.Exp(-float64(v))))
	}
}

func sigmoidGradient[T float](_ none, dx []T, in [][]T) {
	dy := in[1]
	for i, v := range in[0] {
		dx[i] = dy[i] * (v * (1 - v))
	}
}

func tanh[T float](_ none, y []T, in [][]T) {
	for i, v := range in[0] {
		y[i] = T(math.Tanh(float64(v)))
	}
}

func tanhGradient[T float](_ none, dx []T, in [][]T) {
	dy := in[1]
	for i, v := range in[0] {
		dx[i] = dy[i] * (1 - T(v*v))
	}
}

// Softmax is exp(x) / sum(exp(x)) over the last axis. Unlike Gorgonia's
// softmax, it does not overflow.
func Softmax(x *gorgonia.Node) (*gorgonia.Node, error) {
	return newRowwise("softmax", false, x, kernels[[]float64]{softmax[float32], softmax[float64], softmaxGradient[float32], softmaxGradient[float64], true, nil})
}

// LogSoftmax is the logarithm of Softmax, computed without computing Softmax
// first.
func LogSoftmax(x *gorgonia.Node) (*gorgonia.Node, error) {
	return newRowwise("log softmax", true, x, kernels[[]float64]{logSoftmax[float32], logSoftmax[float64], logSoftmaxGradient[float32], logSoftmaxGradient[float64], true, nil})
}

// newRowwise adds an operation on the rows of x whose gradient is computed
// from the operation's result. The parameter of its kernels is scratch memory
// for one row.
func newRowwise(what string, log bool, x *gorgonia.Node, k kernels[[]float64]) (*gorgonia.Node, error) {
	if _, err := floats(what, x); err != nil {
		return nil, err
	}
	s, classes := x.Shape(), 1
	if len(s) > 0 {
		classes = s[len(s)-1]
	}
	k.gpu = func(n int, gradient bool) *operation.GPU {
		return by(func(t gpu.Type) (gpu.Operation, error) {
			if gradient {
				return gpu.RowSoftmaxGradient(t, n/max(1, classes), classes, log)
			}
			return gpu.RowSoftmax(t, n/max(1, classes), classes, log)
		})
	}
	return k.apply(what, make([]float64, classes), x, s)
}

func softmax[T float](exp []float64, y []T, in [][]T) {
	x, n := in[0], len(exp)
	for ; len(x) > 0; x, y = x[n:], y[n:] {
		_, sum := exponentials(exp, x[:n])
		for i, v := range exp {
			y[i] = T(v / sum)
		}
	}
}

// softmaxGradient computes y (dy - sum(dy y)), where y is the softmax and dy
// its gradient.
func softmaxGradient[T float](scratch []float64, dx []T, in [][]T) {
	y, dy, n := in[0], in[1], len(scratch)
	for ; len(y) > 0; dx, y, dy = dx[n:], y[n:], dy[n:] {
		sum := 0.0
		for i := range n {
			sum += float64(float64(dy[i]) * float64(y[i]))
		}
		for i := range n {
			dx[i] = T(float64(y[i]) * (float64(dy[i]) - sum))
		}
	}
}

func logSoftmax[T float](exp []float64, y []T, in [][]T) {
	x, n := in[0], len(exp)
	for ; len(x) > 0; x, y = x[n:], y[n:] {
		largest, sum := exponentials(exp, x[:n])
		log := math.Log(sum)
		for i, v := range x[:n] {
			y[i] = T((float64(v) - largest) - log)
		}
	}
}

// logSoftmaxGradient computes dy - exp(y) sum(dy), where y is the log softmax
// and dy its gradient.
func logSoftmaxGradient[T float](scratch []float64, dx []T, in [][]T) {
	y, dy, n := in[0], in[1], len(scratch)
	for ; len(y) > 0; dx, y, dy = dx[n:], y[n:], dy[n:] {
		sum := 0.0
		for _, d := range dy[:n] {
			sum += float64(d)
		}
		for i := range n {
			dx[i] = T(float64(dy[i]) - float64(math.Exp(float64(y[i]))*sum))
		}
	}
}
