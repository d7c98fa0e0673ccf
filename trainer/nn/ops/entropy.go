package ops

import (
	"fmt"
	"math"
	"slices"

	gpu "github.com/plx-run/plx/trainer/executor/gpu/kernels"

	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// CrossEntropy is the mean over the rows of -log(softmax(logits)[label]).
//
// The logits have shape (batch, classes). The labels have one of two forms. If
// they have the shape and type of the logits, they are one-hot or any weights
// of the classes. If they have shape (batch), they are class numbers from 0 to
// classes-1, as int, int32, int64, float32 or float64; with any other number,
// running the graph fails. The labels have no gradient.
//
// Large logits do not overflow, because each row's largest logit is subtracted
// first.
func CrossEntropy(logits, labels *gorgonia.Node) (*gorgonia.Node, error) {
	e, err := newEntropy("cross entropy", logits, labels)
	if err != nil {
		return nil, err
	}
	return e.loss(logits, labels, float64(e.rows))
}

// SumCrossEntropy is the sum of the cross entropies of the rows; CrossEntropy
// is their mean.
func SumCrossEntropy(logits, labels *gorgonia.Node) (*gorgonia.Node, error) {
	e, err := newEntropy(summed, logits, labels)
	if err != nil {
		return nil, err
	}
	return e.loss(logits, labels, 1)
}

const summed = "summed cross entropy"

// SmoothCrossEntropy is CrossEntropy with label smoothing (Szegedy et al.
// 2016, "Rethinking the inception architecture for computer vision"): a
// fraction of each row's label is divided equally among all classes. Labels
// that are weights of the classes must add up to 1 in each row.
func SmoothCrossEntropy(logits, labels *gorgonia.Node, fraction float64) (*gorgonia.Node, error) {
	if !(fraction >= 0 && fraction < 1) {
		return nil, fmt.Errorf("cross entropy: a fraction of %v of the labels is smoothed, want at least 0 and less than 1", fraction)
	}
	loss, err := CrossEntropy(logits, labels)
	if err != nil || fraction == 0 {
		return loss, err
	}
	// If all classes have the same label weight, the cross entropy is the
	// negative mean of all log probabilities.
	even, err := LogSoftmax(logits)
	if err == nil {
		even, err = gorgonia.Mean(even)
	}
	if err == nil {
		even, err = scaled(even, -fraction)
	}
	if err == nil {
		loss, err = scaled(loss, 1-fraction)
	}
	if err != nil {
		return nil, fmt.Errorf("cross entropy: smooth the labels: %w", err)
	}
	return gorgonia.Add(loss, even)
}

// scaled returns x multiplied by a constant.
func scaled(x *gorgonia.Node, by float64) (*gorgonia.Node, error) {
	if x.Dtype() == tensor.Float32 {
		return gorgonia.Mul(x, gorgonia.NewConstant(float32(by)))
	}
	return gorgonia.Mul(x, gorgonia.NewConstant(by))
}

// entropy holds the parameters of a cross entropy and of its gradient. Its
// kernels add in float64.
type entropy struct {
	what          string
	dtype         tensor.Dtype
	rows, classes int
	divisor       float64
	class         func(labels gorgonia.Value, row int) float64 // reads the class number of a row; nil if labels are weights of the classes
	labels        gpu.Labels                                   // the form and type of the labels, for the GPU kernels
	// exp and sums hold exp(logit - largest) of each row, and their sums. The
	// loss operation stores them for its gradient. The gradient takes the loss
	// as an input so that it runs after the loss. If there are more than
	// mostKept logits, exp holds only one row, sums is nil, and the gradient
	// computes the exponentials again.
	exp, sums []float64
}

// mostKept is the largest number of logits whose exponentials the loss stores
// for its gradient; they take 2 MiB.
const mostKept = 1 << 18

// kept reports whether the loss stores its exponentials for the gradient.
func (e *entropy) kept() bool { return e.sums != nil }

// exponentialsOf returns exp(logit - largest) for all logits of row i, the
// largest logit, and the sum of the exponentials.
func exponentialsOf[T float](e *entropy, logits gorgonia.Value, i int) (exp []float64, largest, sum float64) {
	exp = e.exp
	if e.kept() {
		exp = row(e.exp, i, e.classes)
	}
	largest, sum = exponentials(exp, row(data[T](logits), i, e.classes))
	if e.kept() {
		e.sums[i] = sum
	}
	return exp, largest, sum
}

// newEntropy checks the types and shapes of logits and labels. Its errors
// begin with what.
func newEntropy(what string, logits, labels *gorgonia.Node) (*entropy, error) {
	dtype, err := floats(what, logits)
	if err != nil {
		return nil, err
	}
	if labels == nil {
		return nil, fmt.Errorf("%s: labels: %w", what, errNil)
	}
	s := logits.Shape()
	if len(s) != 2 {
		return nil, fmt.Errorf("%s: the logits are %s, want (batch, classes)", what, told(logits))
	}
	e := &entropy{what: what, dtype: dtype, rows: s[0], classes: s[1]}
	if n := s[0] * s[1]; n <= mostKept {
		e.exp, e.sums = make([]float64, n), make([]float64, s[0])
	} else {
		e.exp = make([]float64, s[1])
	}
	switch {
	case slices.Equal(labels.Shape(), s) && labels.Dtype() == dtype:
	case slices.Equal(labels.Shape(), s[:1]) && classOf[labels.Dtype()] != nil:
		e.class, e.labels = classOf[labels.Dtype()], labelsOf[labels.Dtype()]
	default:
		return nil, fmt.Errorf("%s: the logits are %s %v, the labels %s %v: want one %v for each logit, or one class for each row",
			what, told(logits), dtype, told(labels), labels.Dtype(), dtype)
	}
	return e, nil
}

// labelsOf maps the Go types that class numbers may have to their GPU
// equivalents.
var labelsOf = map[tensor.Dtype]gpu.Labels{
	tensor.Int: gpu.Int64Classes, tensor.Int64: gpu.Int64Classes, tensor.Int32: gpu.Int32Classes,
	tensor.Float32: gpu.Float32Classes, tensor.Float64: gpu.Float64Classes,
}

func (e *entropy) gpu(kernels func(t gpu.Type) (gpu.Operation, error)) *operation.GPU {
	g := by(kernels)
	if e.class != nil {
		g.Labels = operation.Labels{Rows: e.rows, Classes: e.classes}
	}
	return g
}

func (e *entropy) loss(logits, labels *gorgonia.Node, divisor float64) (*gorgonia.Node, error) {
	e.divisor = divisor
	o := newOp(e.what, e.dtype, nil, chooseValues(e.dtype, entropyLoss[float32], entropyLoss[float64], e)).with(e.gradient, 1)
	return o.on(e.gpu(func(t gpu.Type) (gpu.Operation, error) {
		return gpu.CrossEntropy(t, e.rows, e.classes, e.labels, divisor)
	})).apply(logits, labels)
}

func (e *entropy) gradient(x gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	o := newOp("gradient of "+e.what, e.dtype, x[0].Shape(),
		chooseValues(e.dtype, entropyGradient[float32], entropyGradient[float64], e))
	o.gpu = e.gpu(func(t gpu.Type) (gpu.Operation, error) {
		return gpu.CrossEntropyGradient(t, e.rows, e.classes, e.labels, e.divisor)
	})
	o.gpu.Inputs = func(bool) []int { return []int{0, 1, 3} } // the GPU kernel recomputes the exponentials, so it does not need input 2, the loss
	dx, err := o.apply(x[0], x[1], y, dy)
	return gorgonia.Nodes{dx, nil}, err
}

func entropyLoss[T float](e *entropy, out gorgonia.Value, in []gorgonia.Value) error {
	loss := 0.0
	for i := range e.rows {
		logits := row(data[T](in[0]), i, e.classes)
		_, largest, sum := exponentialsOf[T](e, in[0], i)
		logSum := math.Log(sum)
		if e.class == nil {
			for c, weight := range row(data[T](in[1]), i, e.classes) {
				if weight != 0 { // skip weight 0, because 0 times the infinite loss of a logit of -Inf is NaN
					loss += float64(float64(weight) * (logSum + (largest - float64(logits[c]))))
				}
			}
			continue
		}
		label, err := e.label(in[1], i)
		if err != nil {
			return err
		}
		loss += logSum + (largest - float64(logits[label]))
	}
	data[T](out)[0] = T(loss / e.divisor)
	return nil
}

// entropyGradient computes softmax(logits) - labels, multiplied by the
// gradient of the loss. Its inputs are the logits, the labels, the loss and
// the gradient of the loss.
func entropyGradient[T float](e *entropy, out gorgonia.Value, in []gorgonia.Value) error {
	dy := float64(data[T](in[3])[0]) / e.divisor
	for i := range e.rows {
		var exp []float64
		var sum float64
		if e.kept() {
			exp, sum = row(e.exp, i, e.classes), e.sums[i]
		} else {
			exp, _, sum = exponentialsOf[T](e, in[0], i)
		}
		dx := row(data[T](out), i, e.classes)
		if e.class != nil {
			label, err := e.label(in[1], i)
			if err != nil {
				return err
			}
			for c, v := range exp {
				dx[c] = T(dy * (v / sum))
			}
			dx[label] = T(dy * (exp[label]/sum - 1))
			continue
		}
		labels, weight := row(data[T](in[1]), i, e.classes), 0.0
		for _, l := range labels {
			weight += float64(l)
		}
		for c, v := range exp {
			dx[c] = T(dy * (float64(weight*(v/sum)) - float64(labels[c])))
		}
	}
	return nil
}

// label returns the class number of row i. It returns an error if the number
// is not a valid class.
func (e *entropy) label(labels gorgonia.Value, i int) (int, error) {
	return operation.Labels{Classes: e.classes}.Class(i, e.class(labels, i))
}

// classOf maps each type that class numbers may have to a function that reads
// the class number of one row.
var classOf = map[tensor.Dtype]func(labels gorgonia.Value, row int) float64{
	tensor.Int: element[int], tensor.Int32: element[int32], tensor.Int64: element[int64],
	tensor.Float32: element[float32], tensor.Float64: element[float64],
}

func element[T int | int32 | int64 | float](v gorgonia.Value, i int) float64 {
	return float64(data[T](v)[i])
}

// row returns elements i*n to (i+1)*n of x.
func row[T any](x []T, i, n int) []T { return x[i*n : (i+1)*n] }

// exponentials computes exp(x - largest) for each element of x, and stores the
// results in the slice to. It returns the largest element of x and the sum of
// the exponentials.
func exponentials[T float](to []float64, x []T) (largest, sum float64) {
	most := x[0]
	for _, v := range x {
		most = max(most, v)
	}
	largest = float64(most)
	for i, v := range x {
		to[i] = math.Exp(float64(v) - largest)
		sum += to[i]
	}
	return largest, sum
}

// Accuracy is the fraction of rows in which the label's class has the largest
// logit. Among equal logits, the first counts as the largest. The inputs are
// those of CrossEntropy. Accuracy has no gradient.
func Accuracy(logits, labels *gorgonia.Node) (*gorgonia.Node, error) {
	e, err := newEntropy("accuracy", logits, labels)
	if err != nil {
		return nil, err
	}
	o := newOp(e.what, e.dtype, nil, chooseValues(e.dtype, accuracy[float32], accuracy[float64], e)).with(nil, 2)
	return o.on(e.gpu(func(t gpu.Type) (gpu.Operation, error) { return gpu.Accuracy(t, e.rows, e.classes, e.labels) })).apply(logits, labels)
}

func accuracy[T float](e *entropy, out gorgonia.Value, in []gorgonia.Value) error {
	right := 0
	for i := range e.rows {
		label := 0
		if e.class == nil {
			label = first(row(data[T](in[1]), i, e.classes))
		} else {
			var err error
			if label, err = e.label(in[1], i); err != nil {
				return err
			}
		}
		if first(row(data[T](in[0]), i, e.classes)) == label {
			right++
		}
	}
	data[T](out)[0] = T(float64(right) / float64(e.rows))
	return nil
}

// first returns the index of the largest element of x; of several, the first.
func first[T float](x []T) int { return slices.Index(x, slices.Max(x)) }
