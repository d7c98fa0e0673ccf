package hooks

import (
	"fmt"
	"runtime/debug"
)

// PanicError is the error for a panic in a function of the user's program.
type PanicError struct {
	Value any    // argument of panic
	Stack []byte // stack of the goroutine that panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Guarded calls do, a function of the user's program, and turns a panic into a
// *PanicError.
func Guarded(do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	return do()
}
