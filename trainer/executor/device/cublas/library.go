package cublas

import (
	"fmt"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor/device"
)

// oldest is the first version that works in memory of its caller.
const oldest = 11

// Library is an opened cuBLAS for one GPU.
type Library struct {
	calls   calls
	gpu     device.GPU
	major   int    // of the GPU's compute capability
	file    string // as it was opened
	version version
}

// Name is the library with its version.
func (l *Library) Name() string { return "cuBLAS " + l.version.String() }

// open opens a file, if it is a cuBLAS that works on a GPU.
func open(file string, g device.GPU) (*Library, error) {
	c, err := load(file)
	if err != nil {
		return nil, err
	}
	info, err := g.Info()
	if err != nil {
		return nil, err
	}
	l := &Library{calls: c, gpu: g, major: info.Major, file: file}
	for part := range l.version {
		var v int32
		if err := c.do("cublasGetProperty", uintptr(part), uintptr(unsafe.Pointer(&v))); err != nil {
			return nil, &refusedError{file, err}
		}
		l.version[part] = int(v)
	}
	if l.version[0] < oldest {
		return nil, &refusedError{file, fmt.Errorf("it is %s, want %d or newer", l.Name(), oldest)}
	}
	h, err := l.create()
	if err == nil {
		err = h.Close()
	}
	if err != nil {
		return nil, &refusedError{file, err}
	}
	return l, nil
}

// create makes a handle. A library that is too new for the driver or the GPU refuses
// that.
func (l *Library) create() (*Handle, error) {
	h := &Handle{library: l, one32: 1, one64: 1}
	h.multiply = h.call
	return h, l.gpu.Do(func() error { return l.calls.do("cublasCreate_v2", uintptr(unsafe.Pointer(&h.handle))) })
}

// Workspace is the size of the memory that a handle works in, in bytes: what NVIDIA
// recommends.
func (l *Library) Workspace() int {
	if l.major >= 9 {
		return 32 << 20
	}
	return 8 << 20
}

// defaultMath multiplies numbers in their own precision.
const defaultMath = 0

// On makes a handle whose products go on a stream. The workspace has Workspace bytes,
// aligned to 256, that nothing else uses while a product runs.
func (l *Library) On(s device.Stream, workspace device.Pointer) (*Handle, error) {
	h, err := l.create()
	if err != nil {
		return nil, err
	}
	if err := h.prepare(s, workspace); err != nil {
		_ = h.Close() // the first error says what is wrong
		return nil, err
	}
	return h, nil
}

// prepare sets the stream first: that takes the handle's workspace away.
func (h *Handle) prepare(s device.Stream, workspace device.Pointer) error {
	l := h.library
	return l.gpu.Do(func() error {
		if err := l.calls.do("cublasSetStream_v2", h.handle, s.Handle()); err != nil {
			return err
		}
		if err := l.calls.do("cublasSetWorkspace_v2", h.handle, uintptr(workspace), uintptr(l.Workspace())); err != nil {
			return err
		}
		return l.calls.do("cublasSetMathMode", h.handle, defaultMath)
	})
}
