package executor

import (
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"
)

// prealloc is implemented by operations that can write into a given value.
type prealloc interface {
	UsePreallocDo(prealloc gorgonia.Value, inputs ...gorgonia.Value) (gorgonia.Value, error)
}

// ownKernel calls an operation that brings its kernel.
type ownKernel struct {
	op     Kernel
	out    gorgonia.Value
	inputs []gorgonia.Value
}

func (k *ownKernel) run() error { return k.op.Run(k.out, k.inputs...) }

// foreign calls an operation the way Gorgonia does and copies what it gives.
// Operations write to what Gorgonia calls their values, headers with shape and
// strides; each call has headers of its own.
type foreign struct {
	op     gorgonia.Op
	to     []byte
	out    gorgonia.Value
	inputs []gorgonia.Value
	reuse  bool
}

func (k *foreign) run() error {
	var got gorgonia.Value
	var err error
	if k.reuse {
		clear(k.to) // some add to what is there
		got, err = k.op.(prealloc).UsePreallocDo(k.out, k.inputs...)
	} else {
		got, err = k.op.Do(k.inputs...)
	}
	if err != nil {
		return err
	}
	if got == nil {
		return fmt.Errorf("it gave nothing")
	}
	if got == k.out {
		return nil
	}
	return copyValue(k.to, got)
}

// newCall makes the kernel of an operation that is not this package's.
// Gorgonia's own are called with Do: where they take memory to write to they
// do not all leave the right thing there.
func newCall(v *vertex) (kernel, error) {
	if v.cell != nil {
		panic("executor: memory of a called operation moves")
	}
	op := v.of.Op()
	out, err := wrap(v.dtype, v.shape, v.scalar, v.bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.label(), err)
	}
	inputs := make([]gorgonia.Value, len(v.inputs))
	for i, in := range v.inputs {
		if inputs[i], err = wrap(in.dtype, in.shape, in.scalar, in.root.bytes); err != nil {
			return nil, fmt.Errorf("%s: input %d: %w", v.label(), i, err)
		}
	}
	if k, ok := op.(Kernel); ok {
		return &ownKernel{k, out, inputs}, nil
	}
	_, reuse := op.(prealloc)
	reuse = reuse && !strings.HasPrefix(strings.TrimPrefix(fmt.Sprintf("%T", op), "*"), "gorgonia.")
	return &foreign{op, v.bytes, out, inputs, reuse}, nil
}
