package kernels

// Softmax is e^x / sum(e^x) along an axis of a, or its logarithm. The shape is
// (outer, n, inner) with the axis in the middle. It is the operation of the
// compiled program; package nn's is [RowSoftmax].
func Softmax(t Type, outer, n, inner int, log bool) (Operation, error) {
	return alongAxis(t, "softmax_", []string{"out", "a"}, outer, n, inner, log)
}

// SoftmaxGradient is the gradient of the operand of Softmax, from its result y
// and the gradient dy of y.
func SoftmaxGradient(t Type, outer, n, inner int, log bool) (Operation, error) {
	return alongAxis(t, "softmax_gradient_", []string{"dx", "y", "dy"}, outer, n, inner, log)
}

func alongAxis(t Type, kernel string, operands []string, outer, n, inner int, log bool) (Operation, error) {
	team, rows := teamFor(n, inner > 1), elements(outer, inner)
	o := Operation{Operands: operands}
	if elements(outer, n, inner) == 0 {
		return o, nil
	}
	return o.then(launch("rows", kernel+t.suffix(), team.grid(rows), blockThreads, all(len(operands)), rows, n, inner, flag(log), team.lanes)),
		check("softmax", elements(outer, n, inner))
}

// RowSoftmax is nn.Softmax, or nn.LogSoftmax, of rows of n elements.
func RowSoftmax(t Type, rows, n int, log bool) (Operation, error) {
	return rowwise(t, "wide_softmax_", []string{"out", "a"}, rows, n, log)
}

// RowSoftmaxGradient is the gradient of the operand of RowSoftmax, from its
// result y and the gradient dy of y.
func RowSoftmaxGradient(t Type, rows, n int, log bool) (Operation, error) {
	return rowwise(t, "wide_softmax_gradient_", []string{"dx", "y", "dy"}, rows, n, log)
}

func rowwise(t Type, kernel string, operands []string, rows, n int, log bool) (Operation, error) {
	team := teamFor(n, false)
	o := Operation{Operands: operands}
	if elements(rows, n) == 0 {
		return o, nil
	}
	return o.then(launch("rows", kernel+t.suffix(), team.grid(rows), blockThreads, all(len(operands)), rows, n, flag(log), team.lanes)),
		check("softmax", elements(rows, n))
}

// Labels says what the labels of rows are.
type Labels int

// The kinds of labels: a weight of each class, in the type of the logits, or one
// class number for each row.
const (
	Weights Labels = iota
	Int32Classes
	Int64Classes
	Float32Classes
	Float64Classes
)

// CrossEntropy is the sum over the rows of -log(softmax(logits)[label]), divided
// by divisor. A number that is no class makes the result NaN, where package nn
// returns an error; package gpu checks the labels that it copies to the GPU.
func CrossEntropy(t Type, rows, classes int, labels Labels, divisor float64) (Operation, error) {
	team := teamFor(classes, false)
	o := Operation{Operands: []string{"out", "logits", "labels"}, Scratch: 8 * rows}
	o = o.then(launch("rows", "entropy_"+t.suffix(), team.grid(rows), blockThreads, []int{3, 1, 2}, rows, classes, int(labels), team.lanes))
	return o.then(total(t, rows, divisor)), check("cross entropy", elements(rows, classes))
}

// CrossEntropyGradient is the gradient of the logits of CrossEntropy, from the
// gradient dy of the loss. A number that is no class makes its row NaN.
func CrossEntropyGradient(t Type, rows, classes int, labels Labels, divisor float64) (Operation, error) {
	team := teamFor(classes, false)
	o := Operation{Operands: []string{"dx", "logits", "labels", "dy"}}
	return o.then(launch("rows", "entropy_gradient_"+t.suffix(), team.grid(rows), blockThreads, all(4),
		divisor, rows, classes, int(labels), team.lanes)), check("cross entropy", elements(rows, classes))
}

// Accuracy is the fraction of rows whose label has the largest logit, the first
// of equal ones. A number that is no class makes it NaN.
func Accuracy(t Type, rows, classes int, labels Labels) (Operation, error) {
	o := Operation{Operands: []string{"out", "logits", "labels"}, Scratch: 8 * rows}
	o = o.then(launch("rows", "right_"+t.suffix(), grid(rows), blockThreads, []int{3, 1, 2}, rows, classes, int(labels)))
	return o.then(total(t, rows, float64(rows))), check("accuracy", elements(rows, classes))
}

// total adds n numbers of scratch memory, operand 3, and divides the sum.
func total(t Type, n int, divisor float64) Launch {
	return launch("rows", "total_"+t.suffix(), [3]uint32{1, 1, 1}, blockThreads, []int{0, 3}, divisor, n)
}
