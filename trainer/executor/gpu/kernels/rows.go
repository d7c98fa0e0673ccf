package kernels

// Softmax computes e^x / sum(e^x), or its logarithm, along the middle axis of
// a, which has the shape (outer, n, inner). It is Gorgonia's softmax; the
// softmax of package nn is [RowSoftmax].
func Softmax(t Type, outer, n, inner int, log bool) (Operation, error) {
	return alongAxis(t, "softmax_", []string{"out", "a"}, outer, n, inner, log)
}

// SoftmaxGradient computes the gradient of Softmax's operand from the result y
// of Softmax and the gradient dy of y.
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

// RowSoftmax computes nn.Softmax, or nn.LogSoftmax if log is true, of each row
// of n elements.
func RowSoftmax(t Type, rows, n int, log bool) (Operation, error) {
	return rowwise(t, "wide_softmax_", []string{"out", "a"}, rows, n, log)
}

// RowSoftmaxGradient computes the gradient of RowSoftmax's operand from the
// result y of RowSoftmax and the gradient dy of y.
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

// Labels is the form of the operand labels, which says the class of each row.
type Labels int

// The forms of labels. With Weights, there is one weight for each row and
// class, of the same type as the logits. With all other forms, there is one
// class number for each row.
const (
	Weights Labels = iota
	Int32Classes
	Int64Classes
	Float32Classes
	Float64Classes
)

// CrossEntropy computes the sum over the rows of -log(softmax(logits)[label]),
// divided by divisor. An invalid class number makes the result NaN, whereas
// package nn returns an error. Package gpu therefore checks class numbers
// before it copies them to the GPU.
func CrossEntropy(t Type, rows, classes int, labels Labels, divisor float64) (Operation, error) {
	team := teamFor(classes, false)
	o := Operation{Operands: []string{"out", "logits", "labels"}, Scratch: 8 * rows}
	o = o.then(launch("rows", "entropy_"+t.suffix(), team.grid(rows), blockThreads, []int{3, 1, 2}, rows, classes, int(labels), team.lanes))
	return o.then(total(t, rows, divisor)), check("cross entropy", elements(rows, classes))
}

// CrossEntropyGradient computes the gradient of CrossEntropy's logits from the
// gradient dy of the loss. An invalid class number makes its row NaN.
func CrossEntropyGradient(t Type, rows, classes int, labels Labels, divisor float64) (Operation, error) {
	team := teamFor(classes, false)
	o := Operation{Operands: []string{"dx", "logits", "labels", "dy"}}
	return o.then(launch("rows", "entropy_gradient_"+t.suffix(), team.grid(rows), blockThreads, all(4),
		divisor, rows, classes, int(labels), team.lanes)), check("cross entropy", elements(rows, classes))
}

// Accuracy computes the fraction of rows whose label is the class with the
// largest logit. Of equal logits the first counts. An invalid class number
// makes the result NaN.
func Accuracy(t Type, rows, classes int, labels Labels) (Operation, error) {
	o := Operation{Operands: []string{"out", "logits", "labels"}, Scratch: 8 * rows}
	o = o.then(launch("rows", "right_"+t.suffix(), grid(rows), blockThreads, []int{3, 1, 2}, rows, classes, int(labels)))
	return o.then(total(t, rows, float64(rows))), check("accuracy", elements(rows, classes))
}

// total returns a launch that adds n numbers and divides their sum by divisor.
// The numbers are in scratch memory, which is operand 3.
func total(t Type, n int, divisor float64) Launch {
	return launch("rows", "total_"+t.suffix(), [3]uint32{1, 1, 1}, blockThreads, []int{0, 3}, divisor, n)
}
