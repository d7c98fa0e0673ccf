package cpu

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/compile"
	"gorgonia.org/gorgonia"
)

// Kernel returns a function that computes value v from its inputs on the CPU.
// Package gpu uses it for operations that have no GPU kernel. A value may lie
// in the memory of another value, its root. The map at contains the memory of
// the roots of v and of v's inputs. Matrix products use lib.
func Kernel(v *compile.Value, lib gorgonia.BLAS, at map[*compile.Value][]byte) (func() error, error) {
	l := newLoader(&compile.Program{}, nil, lib)
	for _, x := range append([]*compile.Value{v}, v.Inputs...) {
		b := at[x.Root]
		if len(b) != x.Root.Length() {
			return nil, fmt.Errorf("%s: got %d bytes of memory for the value, want %d", x.Label(), len(b), x.Root.Length())
		}
		l.put(x.Root, b)
	}
	k, err := l.kernel(v)
	if err != nil {
		return nil, err
	}
	return func() error { return compute(k, v) }, nil
}
