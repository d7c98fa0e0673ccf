package cpu

import (
	"errors"
	"fmt"
	"strings"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
)

// prealloc is implemented by operations that can write into a given value.
type prealloc interface {
	UsePreallocDo(prealloc gorgonia.Value, inputs ...gorgonia.Value) (gorgonia.Value, error)
}

// ownKernel calls an operation that brings its kernel.
type ownKernel struct {
	op     operation.Kernel
	out    gorgonia.Value
	inputs []gorgonia.Value
}

func (k *ownKernel) run() error { return k.op.Run(k.out, k.inputs...) }

// foreign calls an operation the way Gorgonia does and copies its result.
type foreign struct {
	op     gorgonia.Op
	to     []byte
	out    gorgonia.Value
	inputs []gorgonia.Value
	reuse  bool // op implements prealloc and can be trusted with out
}

func (k *foreign) run() error {
	var got gorgonia.Value
	var err error
	if k.reuse {
		clear(k.to) // some operations add to the old contents
		got, err = k.op.(prealloc).UsePreallocDo(k.out, k.inputs...)
	} else {
		got, err = k.op.Do(k.inputs...)
	}
	if err != nil {
		return err
	}
	if got == nil {
		return errors.New("the operation returned no value")
	}
	if got == k.out {
		return nil
	}
	return memory.Copy(k.to, got)
}

// call makes the kernel of an operation that is not this package's. Gorgonia's
// own operations are called with Do: some of them leave a wrong result in
// memory that they are given.
func (l *loader) call(v *compile.Value) (kernel, error) {
	op := v.Node.Op()
	out, err := l.wrap(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.Label(), err)
	}
	inputs := make([]gorgonia.Value, len(v.Inputs))
	for i, in := range v.Inputs {
		if inputs[i], err = l.wrap(in); err != nil {
			return nil, fmt.Errorf("%s: input %d: %w", v.Label(), i, err)
		}
	}
	if k, ok := op.(operation.Kernel); ok {
		return &ownKernel{k, out, inputs}, nil
	}
	_, reuse := op.(prealloc)
	reuse = reuse && !strings.HasPrefix(strings.TrimPrefix(fmt.Sprintf("%T", op), "*"), "gorgonia.")
	return &foreign{op, l.bytes(v), out, inputs, reuse}, nil
}
