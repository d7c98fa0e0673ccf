package executor

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/cpu"
	"github.com/plx-run/plx/trainer/executor/gpu"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// machine runs a compiled program on one device: cpu.Machine on the CPU,
// gpu.Machine on a GPU.
type machine interface {
	Input(i int) []byte
	Output(i int) []byte
	Run(gradients [][]byte, ready func(i int)) error
}

// Program is a compiled graph, loaded on a CPU or a GPU. It may be used by one
// goroutine at a time.
type Program struct {
	compiled *compile.Program
	machine  machine
	inputs   []*tensor.Dense
	outputs  []gorgonia.Value
}

func newProgram(compiled *compile.Program, machine machine) (*Program, error) {
	p := &Program{compiled: compiled, machine: machine}
	for i, v := range compiled.Inputs {
		value, err := memory.Wrap(v.Dtype, v.Shape, false, machine.Input(i))
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", v.Label(), err)
		}
		p.inputs = append(p.inputs, value.(*tensor.Dense))
	}
	for i, v := range compiled.Outputs {
		value, err := memory.Wrap(v.Dtype, v.Shape, v.Scalar, machine.Output(i))
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", v.Label(), err)
		}
		p.outputs = append(p.outputs, value)
	}
	return p, nil
}

// Input returns the memory of input i, which the caller fills before each Run.
func (p *Program) Input(i int) *tensor.Dense { return p.inputs[i] }

// Output returns the value of output i after a run. It is valid until the next
// run.
func (p *Program) Output(i int) gorgonia.Value { return p.outputs[i] }

// OnCPU returns the names of the operations that a GPU program computes on the
// CPU, because they have no GPU kernel. It returns nil for a CPU program.
func (p *Program) OnCPU() []string {
	if m, ok := p.machine.(*gpu.Machine); ok {
		return m.OnCPU()
	}
	return nil
}

// DeviceBytes returns the number of bytes of GPU memory that the program uses,
// 0 for a CPU program.
func (p *Program) DeviceBytes() int {
	if m, ok := p.machine.(*gpu.Machine); ok {
		return m.Bytes()
	}
	return 0
}

// Renew tells the program that the caller has changed bytes [from, to) of
// fixed value i. See Plan.FixedValues for when the caller may change them. A
// GPU program begins to copy the bytes to the GPU. Without a call of Renew,
// the next run finds and copies the change. Several goroutines may call Renew
// at once for different bytes.
func (p *Program) Renew(i, from, to int) {
	if m, ok := p.machine.(*gpu.Machine); ok {
		m.Renew(i, from, to)
	}
}

// Close frees the program's GPU memory. No run may follow.
func (p *Program) Close() error {
	if m, ok := p.machine.(*gpu.Machine); ok {
		return m.Close()
	}
	return nil
}

// Reside makes a GPU program keep its fixed values (such as variables) on the
// GPU and update them there: see gpu.Machine.Reside. Later runs do not copy
// gradients to the host and do not call the callback ready.
func (p *Program) Reside(u gpu.Updates) (*gpu.Resident, error) {
	m, ok := p.machine.(*gpu.Machine)
	if !ok {
		return nil, errors.New("the program runs on the CPU")
	}
	return m.Reside(u)
}

// Run computes everything that the plan requests and returns the loss. It
// writes the gradient of Plan.Differentiate[i] to gradients[i]: row-major
// memory, aligned for its type. The loss is 0 if the plan has none.
//
// Run calls ready(i), if ready is not nil, once for each i, on the caller's
// goroutine. At that time gradients[i] is complete, and no later instruction
// of this run reads variable i or gradients[i].
//
// After an error, the outputs and the gradients without a call of ready are
// undefined. The next run is not affected.
func (p *Program) Run(c operation.Call, gradients [][]byte, ready func(i int)) (loss float64, err error) {
	if err = p.check(gradients); err == nil {
		err = p.prepare(c)
	}
	if err == nil {
		err = p.machine.Run(gradients, ready)
	}
	if err != nil {
		return 0, fmt.Errorf("run the program: %w", err)
	}
	return p.loss(), nil
}

// check returns an error unless every gradient has memory of the right size
// and alignment.
func (p *Program) check(gradients [][]byte) error {
	if len(gradients) != len(p.compiled.Gradients) {
		return fmt.Errorf("memory for %d gradients, want %d", len(gradients), len(p.compiled.Gradients))
	}
	for i, g := range p.compiled.Gradients {
		b := gradients[i]
		if len(b) != g.Value.Length() {
			return fmt.Errorf("gradient of %q: %d bytes of memory, want %d", g.Name, len(b), g.Value.Length())
		}
		if len(b) > 0 && uintptr(unsafe.Pointer(&b[0]))%g.Value.Dtype.Size() != 0 {
			return fmt.Errorf("gradient of %q: its memory is not aligned for %v", g.Name, g.Value.Dtype)
		}
	}
	return nil
}

// prepare passes the step number and the other parameters of this run to the
// operations that need them. It converts a panic of an operation into an
// error.
func (p *Program) prepare(c operation.Call) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	for _, o := range p.compiled.Contextual {
		o.Prepare(c)
	}
	return nil
}

func (p *Program) loss() float64 {
	if !p.compiled.HasLoss {
		return 0
	}
	last := len(p.compiled.Outputs) - 1
	b := p.machine.Output(last)
	if p.compiled.Outputs[last].Dtype == tensor.Float32 {
		return float64(memory.View[float32](b)[0])
	}
	return memory.View[float64](b)[0]
}

// Plan lists the inputs, the variables and the requested results of a graph to
// compile.
type Plan = compile.Plan

// Compile makes a CPU program that computes what plan p requests of graph g.
// It adds the vertices of the gradients to g.
//
// The error names the vertex of a refused operation, a leaf without a value, a
// gradient that does not exist, or shapes that do not fit together.
func Compile(g *gorgonia.ExprGraph, p Plan) (*Program, error) {
	return compileFor(g, p, func(c *compile.Program, fixed [][]byte) (machine, error) {
		return cpu.New(c, fixed, gorgonia.WhichBLAS())
	})
}

// CompileOn makes a program for GPU d, or for the CPU if d is nil: see
// Compile. The error is a *gpu.MemoryError if the program does not fit into
// the GPU's memory.
func CompileOn(d *gpu.Device, g *gorgonia.ExprGraph, p Plan) (*Program, error) {
	if d == nil {
		return Compile(g, p)
	}
	return compileFor(g, p, func(c *compile.Program, fixed [][]byte) (machine, error) {
		return gpu.New(c, fixed, gorgonia.WhichBLAS(), d)
	})
}

func compileFor(g *gorgonia.ExprGraph, p Plan, load func(*compile.Program, [][]byte) (machine, error)) (program *Program, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("compile the graph: %w", err)
		}
	}()
	compiled, err := compile.Graph(g, p)
	if err != nil {
		return nil, err
	}
	fixed := make([][]byte, len(p.FixedValues))
	for i, value := range p.FixedValues {
		if fixed[i], err = fixedMemory(compiled.Fixed[i], value); err != nil {
			return nil, err
		}
	}
	m, err := load(compiled, fixed)
	if err != nil {
		return nil, err
	}
	return newProgram(compiled, m)
}

// fixedMemory returns the memory of value, the plan's value for the leaf v of
// the graph. It returns an error if the type, size or memory order of value
// does not match v.
func fixedMemory(v *compile.Value, value gorgonia.Value) ([]byte, error) {
	if value == nil || value.Dtype() != v.Dtype {
		return nil, fmt.Errorf("the value of %s is nil or of another type than the leaf", v.Label())
	}
	b, plain := memory.Raw(value)
	if d, ok := value.(*tensor.Dense); !plain || len(b) != v.Length() || ok && d.IsScalar() {
		return nil, fmt.Errorf("the value of %s has shape %v: want the shape of the leaf, in row-major order", v.Label(), value.Shape())
	}
	return b, nil
}
