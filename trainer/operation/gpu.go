package operation

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/random"
)

// OnGPU is implemented by an operation that GPUs can compute. GPU returns nil for an
// operation that only its own Run computes.
type OnGPU interface {
	GPU() *GPU
}

// GPU says with which kernels GPUs compute an operation.
type GPU struct {
	// Kernels returns the kernels for numbers of the result's type. They take the result,
	// the operation's inputs and, in training, the words of Stream.
	Kernels func(t kernels.Type, train bool) (kernels.Operation, error)
	// Inputs are the indices of the inputs that the kernels take; nil: all inputs.
	Inputs func(train bool) []int
	// Call is that of the next run, if Kernels depends on it; nil: it does not.
	Call *Call
	// Stream is the random stream that the next run reads; nil: there is none.
	Stream func() random.Stream
	// Labels are what input 1 holds, if these are class numbers.
	Labels Labels
}

// Train reports whether the next run is of a training, as far as it matters.
func (g *GPU) Train() bool { return g.Call == nil || g.Call.Train }

// Labels are class numbers of rows. A kernel cannot tell which of them is wrong, so they
// are checked before a run.
type Labels struct{ Rows, Classes int }

// Class is the class of a row with a label, which must be a class number.
func (l Labels) Class(row int, label float64) (int, error) {
	if !(label >= 0 && label < float64(l.Classes)) || label != math.Trunc(label) {
		return 0, fmt.Errorf("row %d has the label %v, want a class from 0 to %d", row, label, l.Classes-1)
	}
	return int(label), nil
}
