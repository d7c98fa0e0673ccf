package kernels

// Bound states how far the results of a GPU operation may be from those of the
// CPU. The CPU's results are those of package cpu for Gorgonia's operations,
// of package nn for its own operations, and of package optimizer for updates.
//
// The bounds hold for finite results. NaN and infinities appear in the same
// elements as on the CPU. The GPU's maximum of 0 and -0 is always 0; the CPU's
// maximum may be the one that comes first.
type Bound struct {
	Operation string  // name of the operation: the code that its constructor takes, or a description
	Type      Type    // element type of the operation
	ULPs      float64 // largest error in units in the last place; if ULPs and Terms are both 0, the bits are equal
	Exact     bool    // if true, the error is the distance from the exact result, not from the CPU's result

	// Terms is not 0 for sums, which the CPU adds in another order. It allows
	// a further error. That error is the product of Terms, the unit roundoff
	// (2^-24 or 2^-53), the number of terms, and the sum of the terms'
	// absolute values.
	Terms float64
}

// Bounds returns the bounds of all operations whose results may differ from
// the CPU's. An operation that is not in the table returns the CPU's bits.
//
// TODO: no real GPU has run this. The bounds were checked only with the
// kernels compiled for a CPU.
func Bounds() []Bound {
	return []Bound{
		// For these operations the CPU uses Go's package math. The GPU uses
		// another algorithm in double precision. The float32 results differ
		// only if the exact result is close to the middle between two float32
		// numbers.
		{Operation: "nn.tanh", Type: Float32, ULPs: 1},
		{Operation: "nn.sigmoid", Type: Float32, ULPs: 1},
		{Operation: "ln", Type: Float32, ULPs: 1}, // the logarithm may differ only for subnormal operands
		{Operation: "log2", Type: Float32, ULPs: 1},
		{Operation: "^", Type: Float32, ULPs: 1},

		// For these operations, ULPs is the distance from the exact result,
		// because the CPU's own functions may have larger errors.
		{Operation: "^", Type: Float64, ULPs: 1, Exact: true},
		{Operation: "exp", Type: Float64, ULPs: 1, Exact: true},
		{Operation: "expm1", Type: Float64, ULPs: 2, Exact: true},
		{Operation: "ln", Type: Float64, ULPs: 1, Exact: true},
		{Operation: "log1p", Type: Float64, ULPs: 2, Exact: true},
		{Operation: "log2", Type: Float64, ULPs: 2, Exact: true},
		{Operation: "tanh", Type: Float64, ULPs: 2, Exact: true},
		{Operation: "sigmoid", Type: Float64, ULPs: 2, Exact: true},
		{Operation: "softplus", Type: Float64, ULPs: 2, Exact: true},
		{Operation: "nn.tanh", Type: Float64, ULPs: 2, Exact: true},
		{Operation: "nn.sigmoid", Type: Float64, ULPs: 2, Exact: true},

		// The GPU keeps these sums in double precision. The CPU rounds the sum
		// of each row to float32 before it adds the rows.
		{Operation: "sum", Type: Float32, ULPs: 1, Terms: 1},
		{Operation: "sum", Type: Float64, ULPs: 1, Terms: 1},
		{Operation: "dot", Type: Float32, ULPs: 1},
		{Operation: "dot", Type: Float64, ULPs: 1, Terms: 1},
		{Operation: "matrix times vector", Type: Float32, ULPs: 1, Terms: 1},
		{Operation: "matrix times vector", Type: Float64, ULPs: 1, Terms: 1},
		{Operation: "channels", Type: Float32, ULPs: 1},
		{Operation: "channels", Type: Float64, ULPs: 2, Terms: 1},

		// For these operations, the terms of the sum are the elements of a
		// row.
		{Operation: "softmax", Type: Float32, ULPs: 1},
		{Operation: "softmax", Type: Float64, ULPs: 4, Terms: 1},
		{Operation: "softmax gradient", Type: Float32, ULPs: 1, Terms: 1},
		{Operation: "softmax gradient", Type: Float64, ULPs: 4, Terms: 4},
		{Operation: "cross entropy", Type: Float32, ULPs: 1},
		{Operation: "cross entropy", Type: Float64, ULPs: 4, Terms: 1},
		{Operation: "cross entropy gradient", Type: Float32, ULPs: 1},
		{Operation: "cross entropy gradient", Type: Float64, ULPs: 4, Terms: 1},

		// The GPU adds the terms of a matrix product in the element type. The
		// CPU's BLAS library adds them in an order of its own.
		{Operation: "matrix product", Type: Float32, ULPs: 1, Terms: 1},
		{Operation: "matrix product", Type: Float64, ULPs: 1, Terms: 1},
		{Operation: "convolution", Type: Float32, ULPs: 1, Terms: 1},
		{Operation: "convolution", Type: Float64, ULPs: 1, Terms: 1},
	}
}

// BoundOf returns the bound of an operation. If the table Bounds has no entry,
// the GPU's result must have the same bits as the CPU's.
func BoundOf(operation string, t Type) Bound {
	for _, b := range Bounds() {
		if b.Operation == operation && b.Type == t {
			return b
		}
	}
	return Bound{Operation: operation, Type: t}
}
