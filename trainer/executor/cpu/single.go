package cpu

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/compile"
	"gorgonia.org/gorgonia"
)

// Kernel makes a function that computes one value of a program from its inputs,
// for a machine of another device that has no kernel of its own. at is the memory
// of the value's root and of its inputs' roots. Products use lib.
func Kernel(v *compile.Value, lib gorgonia.BLAS, at map[*compile.Value][]byte) (func() error, error) {
	l := newLoader(&compile.Program{}, nil, lib)
	for _, x := range append([]*compile.Value{v}, v.Inputs...) {
		b := at[x.Root]
		if len(b) != x.Root.Length() {
			return nil, fmt.Errorf("%s: %d bytes of memory for a value of %d", x.Label(), len(b), x.Root.Length())
		}
		l.put(x.Root, b)
	}
	k, err := l.kernel(v)
	if err != nil {
		return nil, err
	}
	return func() error { return compute(k, v) }, nil
}
