package cpu

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// float are the types that have kernels.
type float interface{ float32 | float64 }

// cell holds the memory of a value. Kernels keep a pointer to it, because the
// memory of a gradient changes between runs.
type cell[T float] struct{ data []T }

// pointTo makes b the memory of the cell.
func (c *cell[T]) pointTo(b []byte) { c.data = memory.View[T](b) }

// cells are the cells of all roots of floats.
type cells map[*compile.Value]interface{ pointTo([]byte) }

func cellOf[T float](all cells, v *compile.Value) *cell[T] { return all[v.Root].(*cell[T]) }

// loader places the values of a program in memory and makes their kernels.
type loader struct {
	lib    gorgonia.BLAS
	fixed  [][]byte // by program.Fixed: memory of the caller
	inputs [][]byte // by program.Inputs
	arena  []byte
	at     map[*compile.Value][]byte // memory of roots, gradients aside
	cells  cells
}

func newLoader(p *compile.Program, fixed [][]byte, lib gorgonia.BLAS) *loader {
	l := &loader{lib: lib, fixed: fixed, arena: memory.Aligned(p.ArenaBytes), at: map[*compile.Value][]byte{}, cells: cells{}}
	for _, v := range p.Inputs {
		l.inputs = append(l.inputs, memory.Aligned(v.Length()))
	}
	return l
}

// place gives a value and its inputs memory.
func (l *loader) place(v *compile.Value) {
	for _, in := range v.Inputs {
		l.placeRoot(in.Root)
	}
	l.placeRoot(v.Root)
}

func (l *loader) placeRoot(r *compile.Value) {
	if _, placed := l.at[r]; placed {
		return
	}
	b, i := []byte(nil), r.Place.Index
	switch r.Place.Area {
	case compile.InInputs:
		b = l.inputs[i]
	case compile.InFixed:
		b = l.fixed[i]
	case compile.InArena:
		b = l.arena[i : i+r.Length() : i+r.Length()]
	case compile.InConstants:
		if b = r.Data; b == nil {
			b = memory.Aligned(r.Length())
		}
	}
	l.at[r] = b
	switch r.Dtype {
	case tensor.Float32:
		l.cells[r] = &cell[float32]{memory.View[float32](b)}
	case tensor.Float64:
		l.cells[r] = &cell[float64]{memory.View[float64](b)}
	}
}

// bytes is the memory in which v lies.
func (l *loader) bytes(v *compile.Value) []byte {
	l.placeRoot(v.Root)
	return l.at[v.Root]
}

// wrap is the Gorgonia value that lies in v's memory. Each call makes a header
// of its own, because operations write to headers.
func (l *loader) wrap(v *compile.Value) (gorgonia.Value, error) {
	if v.Root.Place.Area == compile.InGradients {
		return nil, fmt.Errorf("the memory of a called operation must not move")
	}
	return memory.Wrap(v.Dtype, v.Shape, v.Scalar, l.bytes(v))
}
