package kernels

// Bound says how far an operation's results may be from the CPU's: from those of
// package cpu for operations of the compiled program, of package nn for its
// operations, and of package optimizer for updates.
//
// The bounds hold for finite results. NaN and infinities appear where the CPU
// has them. The largest of 0 and -0 is 0, in whatever order they lie; a maximum
// on the CPU may be the first of them.
type Bound struct {
	Operation string  // operations that the bound is for, in the spelling of their constructors
	Type      Type    // of the numbers
	ULPs      float64 // units in the last place of the result; 0 with Terms 0: the bits are equal
	Exact     bool    // the bound counts from the exact result and not from the CPU's

	// Terms is for sums, which the CPU adds in another order: the error may also be
	// Terms times the unit roundoff (2^-24 or 2^-53) times the number of terms times
	// the sum of their absolute values.
	Terms float64
}

// Bounds is the table of all operations whose results differ from the CPU's. An
// operation that is not in the table returns the CPU's bits.
func Bounds() []Bound {
	return []Bound{
		// The CPU takes package math there: another algorithm in double precision,
		// which changes a float32 only close to the middle between two of them.
		{Operation: "nn.tanh", Type: Float32, ULPs: 1},
		{Operation: "nn.sigmoid", Type: Float32, ULPs: 1},
		{Operation: "ln", Type: Float32, ULPs: 1}, // subnormal operands only
		{Operation: "log2", Type: Float32, ULPs: 1},
		{Operation: "^", Type: Float32, ULPs: 1},

		// The CPU's functions may be off by more than these.
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

		// Sums in double precision. The CPU rounds sums of rows to float32 before it
		// adds them.
		{Operation: "sum", Type: Float32, ULPs: 1, Terms: 1},
		{Operation: "sum", Type: Float64, ULPs: 1, Terms: 1},
		{Operation: "dot", Type: Float32, ULPs: 1},
		{Operation: "dot", Type: Float64, ULPs: 1, Terms: 1},
		{Operation: "matrix times vector", Type: Float32, ULPs: 1, Terms: 1},
		{Operation: "matrix times vector", Type: Float64, ULPs: 1, Terms: 1},
		{Operation: "channels", Type: Float32, ULPs: 1},
		{Operation: "channels", Type: Float64, ULPs: 2, Terms: 1},

		// Terms are the elements of a row.
		{Operation: "softmax", Type: Float32, ULPs: 1},
		{Operation: "softmax", Type: Float64, ULPs: 4, Terms: 1},
		{Operation: "softmax gradient", Type: Float32, ULPs: 1, Terms: 1},
		{Operation: "softmax gradient", Type: Float64, ULPs: 4, Terms: 4},
		{Operation: "cross entropy", Type: Float32, ULPs: 1},
		{Operation: "cross entropy", Type: Float64, ULPs: 4, Terms: 1},
		{Operation: "cross entropy gradient", Type: Float32, ULPs: 1},
		{Operation: "cross entropy gradient", Type: Float64, ULPs: 4, Terms: 1},

		// Sums in the type of the numbers: the CPU's library adds in its own order.
		{Operation: "matrix product", Type: Float32, ULPs: 1, Terms: 1},
		{Operation: "matrix product", Type: Float64, ULPs: 1, Terms: 1},
		{Operation: "convolution", Type: Float32, ULPs: 1, Terms: 1},
		{Operation: "convolution", Type: Float64, ULPs: 1, Terms: 1},
	}
}

// BoundOf returns the bound of an operation: the CPU's bits if the table has no
// other.
func BoundOf(operation string, t Type) Bound {
	for _, b := range Bounds() {
		if b.Operation == operation && b.Type == t {
			return b
		}
	}
	return Bound{Operation: operation, Type: t}
}
