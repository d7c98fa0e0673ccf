package cpu

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/compile"
	"gorgonia.org/gorgonia"
)

// Machine runs one program. It is for one goroutine at a time.
type Machine struct {
	program   *compile.Program
	inputs    [][]byte // by program.Inputs
	outputs   [][]byte // by program.Outputs
	kernels   []kernel // by program.Instructions
	gradients []interface{ pointTo([]byte) }
}

// New loads a program: it places its values in memory, computes its constants
// and makes its kernels. fixed is the memory of the fixed values, row-major.
// The caller may change its contents between runs. Products use lib.
func New(p *compile.Program, fixed [][]byte, lib gorgonia.BLAS) (*Machine, error) {
	l := newLoader(p, fixed, lib)
	m := &Machine{program: p, inputs: l.inputs}
	for _, v := range p.Constants {
		if v.Op.Kind == compile.Alias {
			continue
		}
		l.place(v)
		k, err := l.kernel(v)
		if err == nil {
			err = compute(k, v)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, in := range p.Instructions {
		l.place(in.Value)
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

// Input is the memory of input i. The caller fills it before a run.
func (m *Machine) Input(i int) []byte { return m.inputs[i] }

// Output is the memory of output i, which is valid until the next run.
func (m *Machine) Output(i int) []byte { return m.outputs[i] }

// Run computes every instruction. It writes gradient i to gradients[i], and
// calls ready(i), if ready is not nil, once the gradient is complete and no
// later instruction of the run reads its variable. An error names the value
// that failed.
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
		if err := m.kernels[at].run(); err != nil {
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

// failed names the instruction that an error came from.
func (m *Machine) failed(at int, err error) error {
	return fmt.Errorf("%s: %w", m.program.Instructions[at].Value.Label(), err)
}

// compute runs one kernel. A panic of an operation becomes an error.
func compute(k kernel, v *compile.Value) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %v", v.Label(), r)
		}
	}()
	if err := k.run(); err != nil {
		return fmt.Errorf("%s: %w", v.Label(), err)
	}
	return nil
}
