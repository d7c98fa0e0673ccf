package hooks

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a panic of one of the program's functions.
type PanicError struct {
	Value any    // what the function panicked with
	Stack []byte // stack of the goroutine that panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Guarded calls a function of the program. It makes a panic a *PanicError.
func Guarded(do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	return do()
}
