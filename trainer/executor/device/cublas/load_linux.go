//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package cublas

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// load loads a library file and looks up all functions of cuBLAS that this
// package calls.
func load(file string) (calls, error) {
	runtime.LockOSThread() // dlerror returns the error of the calling thread, so dlopen and dlerror must run on one thread
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err // no wrapping, because the message of dlopen names the file
	}
	c := calls{}
	for _, name := range strings.Fields(functions) {
		if c[name], err = purego.Dlsym(handle, name); err != nil {
			return nil, &refusedError{file, fmt.Errorf("it has no function %s: want cuBLAS %d or newer", name, oldest)}
		}
	}
	return c, nil
}

// call calls the C function at the given address and returns its int result.
func call(address uintptr, args []uintptr) int {
	result, _, _ := purego.SyscallN(address, args...)
	return int(int32(result))
}
