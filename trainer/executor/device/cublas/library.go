package cublas

import (
	"fmt"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor/device"
)

// oldest is the oldest major version of cuBLAS that this package supports: the
// first that accepts a workspace from its caller.
const oldest = 11

// Library is a loaded cuBLAS library, for products on one GPU.
type Library struct {
	calls   calls
	gpu     device.GPU
	major   int    // major number of the GPU's compute capability
	file    string // file name or path that Choose passed to the loader
	version version
}

// Name returns the library's name and version, for example "cuBLAS 12.4.5".
func (l *Library) Name() string { return "cuBLAS " + l.version.String() }

// open loads a library file. It returns an error unless the file is a cuBLAS
// that works on GPU g.
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

// create makes a cuBLAS handle without a stream. If cuBLAS is too new for the
// driver or the GPU, this first call of cuBLAS returns an error.
func (l *Library) create() (*Handle, error) {
	h := &Handle{library: l, one32: 1, one64: 1}
	h.multiply = h.call
	return h, l.gpu.Do(func() error { return l.calls.do("cublasCreate_v2", uintptr(unsafe.Pointer(&h.handle))) })
}

// Workspace returns the number of bytes of GPU memory that a handle needs as
// its workspace. The sizes are those that NVIDIA recommends.
func (l *Library) Workspace() int {
	if l.major >= 9 {
		return 32 << 20
	}
	return 8 << 20
}

// defaultMath is CUBLAS_DEFAULT_MATH: cuBLAS computes in the precision of the
// operands.
const defaultMath = 0

// On makes a cuBLAS handle for products on stream s. The parameter workspace
// is the address of l.Workspace() bytes of GPU memory, aligned to 256 bytes.
// Nothing else may use this memory while a product runs.
func (l *Library) On(s device.Stream, workspace device.Pointer) (*Handle, error) {
	h, err := l.create()
	if err != nil {
		return nil, err
	}
	if err := h.prepare(s, workspace); err != nil {
		_ = h.Close() // an error of Close is ignored, because err is the cause
		return nil, err
	}
	return h, nil
}

// prepare sets the handle's stream, workspace and precision. It sets the
// stream first, because cublasSetStream resets the workspace.
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
