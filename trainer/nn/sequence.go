package nn

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/nn/recurrent"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Sequence is the outputs of a recurrent layer. All of them have a gradient.
type Sequence struct {
	Out  *gorgonia.Node // (batch*steps, out)
	Last *gorgonia.Node // (batch, out): the last step of Out
	Cell *gorgonia.Node // (batch, units): the cells after the last step; nil for a GRU
}

// wanted is an input of a layer and the shape that follows from other inputs.
type wanted struct {
	name  string
	n     *gorgonia.Node // nil: not given
	shape []int
}

// wantShapes checks the shapes of the inputs that are given.
func wantShapes(what string, all []wanted) error {
	for _, w := range all {
		if w.n != nil && !slices.Equal(w.n.Shape(), w.shape) {
			return fmt.Errorf("%s: %s is %s, want %v", what, w.name, told(w.n), w.shape)
		}
	}
	return nil
}

// pass makes a kernel of a pass of package recurrent.
func pass[P any](dtype tensor.Dtype, f32 func(P) recurrent.Pass[float32], f64 func(P) recurrent.Pass[float64], p P) kernel {
	if dtype == tensor.Float32 {
		return overMemory(f32(p))
	}
	return overMemory(f64(p))
}

func overMemory[T float](run recurrent.Pass[T]) kernel {
	var memory [][]T // of the inputs, kept so that a run allocates nothing
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		memory = memory[:0]
		for _, v := range in {
			memory = append(memory, data[T](v))
		}
		run(data[T](out), memory)
		return nil
	}
}
