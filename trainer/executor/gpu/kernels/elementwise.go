package kernels

import (
	"fmt"
	"strings"
)

// unary maps the code of an operation on one element to the name of its
// kernel. The codes are Gorgonia's, and "nn." plus a name for the activations
// of package nn.
var unary = map[string]string{
	"abs": "abs", "sign": "sign", "ceil": "ceil", "floor": "floor", "neg": "neg", "square": "square", "cube": "cube", "sqrt": "sqrt",
	"inv": "inv", "invSqrt": "inv_sqrt", "exp": "exp", "ln": "log", "log2": "log2", "log1p": "log1p", "expm1": "expm1",
	"tanh": "tanh", "sigmoid": "sigmoid", "softplus": "softplus",
	"nn.relu": "relu", "nn.tanh": "wide_tanh", "nn.sigmoid": "wide_sigmoid",
}

// binary2 maps the code of an operation on two elements to the name of its
// kernel. For the gradient of an activation, the two operands are the
// activation's result and the gradient of that result.
var binary2 = map[string]string{
	"+": "add", "-": "sub", "⊙": "mul", "÷": "div", "^": "power",
	"<": "less", ">": "more", "<=": "upto", ">=": "from", "==": "equal", "!=": "unequal",
	"min": "min", "max": "max", "tanh gradient": "tanh_gradient",
	"nn.relu gradient": "relu_gradient", "nn.sigmoid gradient": "sigmoid_gradient", "nn.tanh gradient": "tanh_gradient",
}

// Unary computes n elements of out from the n elements of a. Out and a may be
// the same memory. The code is Gorgonia's (such as "tanh"), nn.relu, nn.tanh
// or nn.sigmoid.
func Unary(t Type, code string, n int) (Operation, error) {
	name := unary[code]
	if name == "" {
		return Operation{}, fmt.Errorf("%s on a GPU: there is no kernel for it", code)
	}
	return over("elementwise", "unary_"+name+"_"+t.suffix(), []string{"out", "a"}, n, n), check(code, n)
}

// Copy copies the n elements of a to out.
func Copy(t Type, n int) (Operation, error) {
	return over("elementwise", "unary_copy_"+t.suffix(), []string{"out", "a"}, n, n), check("copy", n)
}

// Binary computes n elements of out from a and b, which have n elements or one
// element each. Out may be the memory of a or b. The code is Gorgonia's (such
// as "⊙"), "min", "max", "tanh gradient", "nn.relu gradient", "nn.tanh
// gradient" or "nn.sigmoid gradient". For a gradient, a is the activation's
// result y, and b is the gradient dy of y.
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

// step returns by how many elements an operand with size elements is advanced
// from one result element to the next: 0 if the operand has only one element,
// otherwise 1.
func step(size int) int { return min(size, 2) / 2 }

func binaryKernel(t Type, code string) (string, error) {
	name := binary2[code]
	if name == "" {
		return "", fmt.Errorf("%s on a GPU: there is no kernel for it", code)
	}
	return name + "_" + t.suffix(), nil
}

// Spread computes an elementwise operation whose operands are read by strides,
// counted in elements. For each index of shape, the kernel reads a and b at
// the sum of index times stride over all dimensions. The code is one of
// Gorgonia's operators or comparisons.
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

// AddBias adds to each channel of x the channel's element of bias. The shape
// of x is (batch, channels, inner). Out and x may be the same memory.
func AddBias(t Type, batch, channels, inner int) (Operation, error) {
	n := elements(batch, channels, inner)
	return over("elementwise", "add_bias_"+t.suffix(), []string{"out", "x", "bias"}, n, n, channels, inner), check("add bias", n)
}
