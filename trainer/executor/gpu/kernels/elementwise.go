package kernels

import (
	"fmt"
	"strings"
)

// unary maps an operation on one element to its kernel: those of the compiled
// program in Gorgonia's spelling, and the activations of package nn.
var unary = map[string]string{
	"abs": "abs", "sign": "sign", "ceil": "ceil", "floor": "floor", "neg": "neg", "square": "square", "cube": "cube", "sqrt": "sqrt",
	"inv": "inv", "invSqrt": "inv_sqrt", "exp": "exp", "ln": "log", "log2": "log2", "log1p": "log1p", "expm1": "expm1",
	"tanh": "tanh", "sigmoid": "sigmoid", "softplus": "softplus",
	"nn.relu": "relu", "nn.tanh": "wide_tanh", "nn.sigmoid": "wide_sigmoid",
}

// binary2 maps an operation on two elements to its kernel. A gradient takes the
// result of its activation and the gradient of this result.
var binary2 = map[string]string{
	"+": "add", "-": "sub", "⊙": "mul", "÷": "div", "^": "power",
	"<": "less", ">": "more", "<=": "upto", ">=": "from", "==": "equal", "!=": "unequal",
	"min": "min", "max": "max", "tanh gradient": "tanh_gradient",
	"nn.relu gradient": "relu_gradient", "nn.sigmoid gradient": "sigmoid_gradient", "nn.tanh gradient": "tanh_gradient",
}

// Unary computes n elements of out from those of a. It may work in place. The
// code is Gorgonia's ("tanh"), or one of nn.relu, nn.tanh and nn.sigmoid.
func Unary(t Type, code string, n int) (Operation, error) {
	name := unary[code]
	if name == "" {
		return Operation{}, fmt.Errorf("%s on a GPU: there is no kernel for it", code)
	}
	return over("elementwise", "unary_"+name+"_"+t.suffix(), []string{"out", "a"}, n, n), check(code, n)
}

// Copy copies n elements of a.
func Copy(t Type, n int) (Operation, error) {
	return over("elementwise", "unary_copy_"+t.suffix(), []string{"out", "a"}, n, n), check("copy", n)
}

// Binary computes n elements of out from those of a and b, of which there are n
// or one each. It may work in place. The code is Gorgonia's ("⊙"), or one of
// min, max, "tanh gradient", "nn.relu gradient", "nn.tanh gradient" and
// "nn.sigmoid gradient". The gradients take y as a and dy as b.
func Binary(t Type, code string, n, sizeA, sizeB int) (Operation, error) {
	name, err := binaryKernel(t, code)
	if err == nil && (sizeA != n && sizeA != 1 || sizeB != n && sizeB != 1) {
		err = fmt.Errorf("%s on a GPU: operands of %d and %d elements for a result of %d", code, sizeA, sizeB, n)
	}
	if err == nil {
		err = check(code, n)
	}
	if err != nil {
		return Operation{}, err
	}
	return over("elementwise", "binary_"+name, []string{"out", "a", "b"}, n, n, step(sizeA), step(sizeB)), nil
}

// step is the distance between elements of an operand: 0 if it has only one.
func step(size int) int { return min(size, 2) / 2 }

func binaryKernel(t Type, code string) (string, error) {
	name := binary2[code]
	if name == "" {
		return "", fmt.Errorf("%s on a GPU: there is no kernel for it", code)
	}
	return name + "_" + t.suffix(), nil
}

// Spread is Binary for operands that are read by strides, counted in elements:
// element i of shape is computed from the elements of a and b at the sum of index
// times stride. The code is an operator or comparison of Gorgonia's.
func Spread(t Type, code string, shape, stridesA, stridesB []int) (Operation, error) {
	name, err := binaryKernel(t, code)
	if err == nil && (strings.HasSuffix(code, "gradient") || code == "min" || code == "max") {
		err = fmt.Errorf("%s on a GPU: there is no kernel for it with strides", code)
	}
	n := elements(shape...)
	if err == nil {
		err = check(code, n)
	}
	if err != nil {
		return Operation{}, err
	}
	d, err := join(code, shape, stridesA, stridesB)
	if err != nil {
		return Operation{}, err
	}
	scalars := append([]any{n}, d.sizes()...)
	scalars = append(append(scalars, d.strides(0)...), d.strides(1)...)
	return over("elementwise", "spread_"+name, []string{"out", "a", "b"}, n, scalars...), nil
}

// AddBias adds to each channel of x (batch, channels, inner) its element of
// bias. It may work in place.
func AddBias(t Type, batch, channels, inner int) (Operation, error) {
	n := elements(batch, channels, inner)
	return over("elementwise", "add_bias_"+t.suffix(), []string{"out", "x", "bias"}, n, n, channels, inner), check("add bias", n)
}
