package executor

import (
	"fmt"
	"time"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Program runs what Compile was asked for. It is for one goroutine at a time.
type Program struct {
	// Trace, when it is set, is called after every instruction of a run with
	// the name of its operation and vertex.
	Trace func(name string, start, end time.Time)

	instructions []instruction
	contextual   []Contextual
	inputs       []*tensor.Dense
	outputs      []gorgonia.Value
	loss         *vertex
	gradients    []target
	at           int // the instruction that is running
	description  Description
}

type instruction struct {
	kernel kernel
	vertex *vertex
	name   string
	ready  []int // gradients to announce after it
}

// target is where a gradient goes.
type target struct {
	vertex *vertex // whose memory changes from run to run
	name   string
	length int
}

// Input is the memory of input i, which the caller fills before Run.
func (p *Program) Input(i int) *tensor.Dense { return p.inputs[i] }

// Output is the value of output i after a run, valid until the next one.
func (p *Program) Output(i int) gorgonia.Value { return p.outputs[i] }

// Run computes. gradients[i] is row-major memory, aligned for its type, to
// which the gradient of Plan.Differentiate[i] is written. ready(i), where
// ready is not nil, is called once for each i, on this goroutine, as soon as
// gradients[i] is complete and no instruction of this run will read variable
// i or gradients[i] any more. The loss is 0 where the plan has none.
//
// After an error the gradients that were not announced and the outputs hold
// nothing of use; the next run is not affected.
func (p *Program) Run(c Call, gradients [][]byte, ready func(i int)) (loss float64, err error) {
	if err := p.bind(gradients); err != nil {
		return 0, err
	}
	p.at = -1
	defer func() {
		if r := recover(); r != nil {
			err = p.failed(fmt.Errorf("%v", r))
		}
	}()
	for _, o := range p.contextual {
		o.Prepare(c)
	}
	if err := p.run(ready); err != nil {
		return 0, p.failed(err)
	}
	return p.readLoss(), nil
}

func (p *Program) run(ready func(i int)) error {
	for i := range p.instructions {
		in := &p.instructions[i]
		p.at = i
		if p.Trace != nil {
			start := time.Now()
			if err := in.kernel.run(); err != nil {
				return err
			}
			p.Trace(in.name, start, time.Now())
		} else if err := in.kernel.run(); err != nil {
			return err
		}
		if ready != nil {
			for _, g := range in.ready {
				ready(g)
			}
		}
	}
	return nil
}

// bind points the gradients to where they are wanted.
func (p *Program) bind(gradients [][]byte) error {
	if len(gradients) != len(p.gradients) {
		return fmt.Errorf("run the program: memory for %d gradients, want %d", len(gradients), len(p.gradients))
	}
	for i, t := range p.gradients {
		b := gradients[i]
		if len(b) != t.length {
			return fmt.Errorf("run the program: gradient of %q: %d bytes of memory, want %d", t.name, len(b), t.length)
		}
		if t.length == 0 {
			continue
		}
		if uintptr(unsafe.Pointer(&b[0]))%t.vertex.dtype.Size() != 0 {
			return fmt.Errorf("run the program: gradient of %q: its memory is not aligned for %v", t.name, t.vertex.dtype)
		}
		switch cell := t.vertex.cell.(type) {
		case *memory[float32]:
			cell.data = view[float32](b)
		case *memory[float64]:
			cell.data = view[float64](b)
		}
	}
	return nil
}

func (p *Program) readLoss() float64 {
	if p.loss == nil {
		return 0
	}
	if p.loss.dtype == tensor.Float32 {
		return float64(view[float32](p.loss.root.bytes)[0])
	}
	return view[float64](p.loss.root.bytes)[0]
}

// failed names the instruction that an error came from.
func (p *Program) failed(err error) error {
	if p.at < 0 {
		return fmt.Errorf("run the program: %w", err)
	}
	return fmt.Errorf("run the program: %s: %w", p.instructions[p.at].vertex.label(), err)
}
