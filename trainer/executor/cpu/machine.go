package cpu

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Machine runs one compiled program on the CPU. It may be used by one
// goroutine at a time.
type Machine struct {
	program   *compile.Program
	inputs    [][]byte // memory of the inputs, in the order of program.Inputs
	outputs   [][]byte // memory of the outputs, in the order of program.Outputs
	kernels   []kernel // functions that compute the instructions, in the order of program.Instructions
	gradients []pointer
}

// New loads a program: it places the program's values in memory, computes the
// constants and makes the kernels. fixed is the memory of the fixed values
// (leaves such as variables), in row-major order. The caller may change its
// contents between runs. Matrix products use lib.
func New(p *compile.Program, fixed [][]byte, lib gorgonia.BLAS) (*Machine, error) {
	l := newLoader(p, fixed, lib)
	m := &Machine{program: p, inputs: l.inputs}
	for _, v := range p.Constants {
		if v.Op.Kind == compile.Alias {
			continue
		}
		k, err := l.kernel(v)
		if err == nil {
			err = compute(k, v)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, in := range p.Instructions {
		k, err := l.kernel(in.Value)
		if err != nil {
			return nil, err
		}
		m.kernels = append(m.kernels, k)
	}
	for _, g := range p.Gradients {
		m.gradients = append(m.gradients, l.cells[g.Value])
	}
	for _, v := range p.Outputs {
		m.outputs = append(m.outputs, l.bytes(v))
	}
	return m, nil
}

// Input returns the memory of input i. The caller fills it before a run.
func (m *Machine) Input(i int) []byte { return m.inputs[i] }

// Output returns the memory of output i. It is valid until the next run.
func (m *Machine) Output(i int) []byte { return m.outputs[i] }

// Run computes every instruction and writes gradient i to gradients[i]. It
// calls ready(i), if ready is not nil, once gradient i is complete and no
// later instruction of the run reads the gradient's variable. An error names
// the value whose computation failed.
func (m *Machine) Run(gradients [][]byte, ready func(i int)) (err error) {
	for i, c := range m.gradients {
		c.pointTo(gradients[i])
	}
	at := 0
	defer func() {
		if r := recover(); r != nil {
			err = m.failed(at, fmt.Errorf("%v", r))
		}
	}()
	for at = range m.kernels {
		if err := m.kernels[at](); err != nil {
			return m.failed(at, err)
		}
		if ready != nil {
			for _, g := range m.program.Instructions[at].Ready {
				ready(g)
			}
		}
	}
	return nil
}

// failed adds to err the name of the value whose instruction failed. The
// parameter at is the index of the instruction.
func (m *Machine) failed(at int, err error) error {
	return fmt.Errorf("%s: %w", m.program.Instructions[at].Value.Label(), err)
}

// compute runs one kernel. It converts a panic of the kernel into an error.
func compute(run kernel, v *compile.Value) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %v", v.Label(), r)
		}
	}()
	if err := run(); err != nil {
		return fmt.Errorf("%s: %w", v.Label(), err)
	}
	return nil
}

// float lists the element types that have kernels.
type float interface{ float32 | float64 }

// cell holds the memory of a value. Kernels keep a pointer to the cell and not
// to the memory, because the memory of a gradient changes between runs.
type cell[T float] struct{ data []T }

// pointTo makes memory b the memory of the cell's value.
func (c *cell[T]) pointTo(b []byte) { c.data = memory.View[T](b) }

// pointer is a cell of any element type.
type pointer interface{ pointTo([]byte) }

// cellOf returns the cell of the value in whose memory v lies.
func cellOf[T float](l *loader, v *compile.Value) *cell[T] {
	l.placeRoot(v.Root)
	return l.cells[v.Root].(*cell[T])
}

// loader places the values of a program in memory and makes their kernels.
type loader struct {
	lib    gorgonia.BLAS
	fixed  [][]byte // the caller's memory for each fixed value, in the order of program.Fixed
	inputs [][]byte // memory of each input, in the order of program.Inputs
	arena  []byte
	at     map[*compile.Value][]byte  // memory of each root (a value with memory of its own); gradients are not in the map, because their memory changes between runs
	cells  map[*compile.Value]pointer // cell (pointer to memory) of each root of type float32 or float64
}

func newLoader(p *compile.Program, fixed [][]byte, lib gorgonia.BLAS) *loader {
	l := &loader{lib: lib, fixed: fixed, arena: memory.Aligned(p.ArenaBytes), at: map[*compile.Value][]byte{}, cells: map[*compile.Value]pointer{}}
	for _, v := range p.Inputs {
		l.inputs = append(l.inputs, memory.Aligned(v.Length()))
	}
	return l
}

// placeRoot assigns memory to r, a value with memory of its own, unless r has
// memory already.
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
	l.put(r, b)
}

// put makes memory b the memory of r, a value with memory of its own.
func (l *loader) put(r *compile.Value, b []byte) {
	l.at[r] = b
	switch r.Dtype {
	case tensor.Float32:
		l.cells[r] = &cell[float32]{memory.View[float32](b)}
	case tensor.Float64:
		l.cells[r] = &cell[float64]{memory.View[float64](b)}
	}
}

// bytes returns the memory in which v lies.
func (l *loader) bytes(v *compile.Value) []byte {
	l.placeRoot(v.Root)
	return l.at[v.Root]
}

// wrap returns a Gorgonia value that uses v's memory. Each call returns a new
// value, because operations change the headers of the tensors that they
// receive.
func (l *loader) wrap(v *compile.Value) (gorgonia.Value, error) {
	if v.Root.Place.Area == compile.InGradients {
		return nil, fmt.Errorf("an operation without a kernel cannot write to the memory of a gradient")
	}
	return memory.Wrap(v.Dtype, v.Shape, v.Scalar, l.bytes(v))
}
