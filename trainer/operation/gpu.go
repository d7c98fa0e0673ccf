package operation

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/random"
)

// OnGPU is the interface of operations that have GPU kernels. Method GPU
// returns nil if this operation has none, so that the CPU must compute it.
type OnGPU interface {
	GPU() *GPU
}

// GPU describes how a GPU computes an operation: with which kernels, and from
// which inputs.
type GPU struct {
	// Kernels returns the GPU kernels for elements of type t. Their arguments
	// are the result, the inputs of the operation and, in training, the random
	// words of Stream.
	Kernels func(t kernels.Type, train bool) (kernels.Operation, error)
	// Inputs returns the indices of the operation's inputs that the kernels
	// take as arguments. nil means that they take all inputs.
	Inputs func(train bool) []int
	// Call describes the next run of the graph. It is nil if Kernels returns
	// the same kernels for every run.
	Call *Call
	// Stream returns the random stream that the next run reads. nil means that
	// the kernels use no random numbers.
	Stream func() random.Stream
	// Labels describes input 1 if this input holds class numbers. The zero
	// value means that it does not.
	Labels Labels
}

// Train reports whether the next run is a training step. It returns true if
// Call is nil: then the kernels are the same in training and in evaluation.
func (g *GPU) Train() bool { return g.Call == nil || g.Call.Train }

// Labels gives the range of valid class numbers in a tensor with one class
// number per row. The executor checks the labels before a run, because a
// kernel could not report which label is invalid.
type Labels struct{ Rows, Classes int }

// Class converts the label of a row to a class number. It returns an error if
// the label is not an integer from 0 to Classes-1.
func (l Labels) Class(row int, label float64) (int, error) {
	if !(label >= 0 && label < float64(l.Classes)) || label != math.Trunc(label) {
		return 0, fmt.Errorf("row %d has the label %v, want a class from 0 to %d", row, label, l.Classes-1)
	}
	return int(label), nil
}
