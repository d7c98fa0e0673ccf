package gpu

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/tensor"
)

// labels are all inputs with class numbers that a run checks.
type labels []label

// label is an input with class numbers, one per row, in CPU memory. A run
// checks the numbers before it copies them to the GPU. A GPU kernel turns an
// invalid class number into NaN and cannot report which number was wrong.
type label struct {
	reader *compile.Value // first operation that reads the class numbers
	labels operation.Labels
	number func(b []byte, row int) float64
	host   []byte // host memory of the class numbers, which the caller fills before a run
}

// findLabels finds the class numbers that are in CPU memory and copied to the
// GPU: inputs, fixed values and constants. Class numbers that the GPU computes
// are not checked. inputs is the memory of the program's inputs.
func findLabels(l *loader, inputs [][]byte) (all labels) {
	seen := map[*compile.Value]int{} // by tensor of class numbers: the number of classes against which all already contains a check
	for _, in := range l.program.Instructions {
		g := onGPU(in.Value)
		if g == nil || g.Labels.Classes == 0 {
			continue
		}
		v := in.Value.Inputs[1]
		host := v.Root.Data
		switch at := v.Root.Place; at.Area {
		case compile.InInputs:
			host = inputs[at.Index]
		case compile.InFixed:
			host = l.fixed[at.Index]
		}
		if host == nil || seen[v.Root] == g.Labels.Classes {
			continue
		}
		seen[v.Root] = g.Labels.Classes
		all = append(all, label{in.Value, g.Labels, numbers[v.Dtype], host})
	}
	return all
}

// numbers maps each element type that can hold class numbers to a function
// that reads the class number of one row.
var numbers = map[tensor.Dtype]func(b []byte, row int) float64{
	tensor.Int: number[int], tensor.Int32: number[int32], tensor.Int64: number[int64],
	tensor.Float32: number[float32], tensor.Float64: number[float64],
}

func number[T int | int32 | int64 | float32 | float64](b []byte, row int) float64 {
	return float64(memory.View[T](b)[row])
}

// check returns an error for the first invalid class number. The error is the
// same as that of the operation on the CPU.
func (all labels) check() error {
	for i := range all {
		l := &all[i]
		for row := range l.labels.Rows {
			if _, err := l.labels.Class(row, l.number(l.host, row)); err != nil {
				return fmt.Errorf("%s: %v: %w", l.reader.Label(), l.reader.Node.Op(), err)
			}
		}
	}
	return nil
}
