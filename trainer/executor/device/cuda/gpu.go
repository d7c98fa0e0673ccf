//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package cuda

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/plx-run/plx/trainer/executor/device"
)

// Open opens the GPU with the given index among the GPUs that
// CUDA_VISIBLE_DEVICES lists. The error says whether NVIDIA's driver is
// missing, is too old, or has no GPU with this index.
func Open(index int) (device.GPU, error) {
	c, err := load()
	if err != nil {
		return nil, fmt.Errorf("open NVIDIA's driver: %w", err)
	}
	g := &gpu{calls: c}
	if err := g.open(index); err != nil {
		return nil, fmt.Errorf("open gpu %d: %w", index, err)
	}
	return g, nil
}

// gpu implements device.GPU with the primary context of the device.
type gpu struct {
	calls
	context uintptr
	info    device.Info
}

func (g *gpu) open(index int) error {
	var driver, handle, major, minor int32
	name := make([]byte, 256)
	for _, call := range []func() error{
		func() error { return g.do("cuInit", 0) },
		func() error { return g.do("cuDriverGetVersion", uintptr(unsafe.Pointer(&driver))) },
		func() error { return g.do("cuDeviceGet", uintptr(unsafe.Pointer(&handle)), uintptr(index)) },
		func() error {
			return g.do("cuDeviceGetName", uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)-1), uintptr(handle))
		},
		// 75 and 76 are the driver's numbers of the attributes
		// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
		func() error {
			return g.do("cuDeviceGetAttribute", uintptr(unsafe.Pointer(&major)), 75, uintptr(handle))
		},
		func() error {
			return g.do("cuDeviceGetAttribute", uintptr(unsafe.Pointer(&minor)), 76, uintptr(handle))
		},
		func() error {
			return g.do("cuDevicePrimaryCtxRetain", uintptr(unsafe.Pointer(&g.context)), uintptr(handle))
		},
	} {
		if err := call(); err != nil {
			return err
		}
	}
	g.info = device.Info{Name: toString(unsafe.Pointer(&name[0])), Major: int(major), Minor: int(minor), Driver: int(driver)}
	return nil
}

func (g *gpu) Info() (device.Info, error) {
	i := g.info
	err := g.in("cuMemGetInfo_v2", uintptr(unsafe.Pointer(&i.Free)), uintptr(unsafe.Pointer(&i.Total)))
	return i, err
}

// in calls a function of the CUDA driver in the GPU's context.
//
//go:uintptrescapes
func (g *gpu) in(call string, args ...uintptr) error { return g.step(call, args...) }

// step calls a function of the CUDA driver, like in, but allocates no memory.
// It is for calls that every training step makes. No argument may point to a
// variable on the Go stack: Go may move the stack, and step does not prevent
// it.
func (g *gpu) step(call string, args ...uintptr) error {
	if code := g.quick(call, args...); code != 0 {
		return g.failed(call, code, "")
	}
	return nil
}

// code calls a function of the CUDA driver, like in, and returns the driver's
// error code instead of an error.
//
//go:uintptrescapes
func (g *gpu) code(call string, args ...uintptr) int { return g.quick(call, args...) }

// block holds the arguments of one call of the CUDA driver. Blocks are reused,
// so that a call allocates no memory.
type block [12]uintptr

var blocks = sync.Pool{New: func() any { return new(block) }}

// quick sets the GPU's context on this thread, calls a function of the CUDA
// driver and returns its error code. It allocates no memory.
func (g *gpu) quick(call string, args ...uintptr) int {
	b := blocks.Get().(*block)
	defer blocks.Put(b)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b[0] = g.context
	if result, _, _ := purego.SyscallN(g.calls["cuCtxSetCurrent"], b[:1]...); int32(result) != 0 {
		return int(int32(result))
	}
	result, _, _ := purego.SyscallN(g.calls[call], b[:copy(b[:], args)]...)
	return int(int32(result))
}

func (g *gpu) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := g.step("cuCtxSetCurrent", g.context); err != nil {
		return err
	}
	return f()
}

func (g *gpu) Alloc(n int) (p device.Pointer, err error) {
	err = g.in("cuMemAlloc_v2", uintptr(unsafe.Pointer(&p)), uintptr(n))
	return p, err
}

func (g *gpu) Free(p device.Pointer) error { return g.in("cuMemFree_v2", uintptr(p)) }

// portable is CU_MEMHOSTALLOC_PORTABLE: all contexts treat the memory as
// pinned.
const portable = 1

func (g *gpu) AllocHost(n int) ([]byte, error) {
	var p unsafe.Pointer
	if err := g.in("cuMemHostAlloc", uintptr(unsafe.Pointer(&p)), uintptr(n), portable); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}

func (g *gpu) FreeHost(b []byte) error {
	return g.in("cuMemFreeHost", uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// The CUDA driver's numbers for options of its PTX compiler:
// CU_JIT_ERROR_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES.
const (
	errorBuffer     = 5
	errorBufferSize = 6
)

func (g *gpu) Load(ptx string) (device.Module, error) {
	source := append([]byte(ptx), 0)
	complaint := make([]byte, 8192)
	options := []uint32{errorBuffer, errorBufferSize}
	values := []uintptr{uintptr(unsafe.Pointer(&complaint[0])), uintptr(len(complaint) - 1)}
	m := &module{gpu: g}
	code := g.code("cuModuleLoadDataEx", uintptr(unsafe.Pointer(&m.handle)), uintptr(unsafe.Pointer(&source[0])),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0])))
	runtime.KeepAlive(complaint)
	if code != 0 {
		return nil, g.failed("cuModuleLoadDataEx", code, strings.TrimSpace(toString(unsafe.Pointer(&complaint[0]))))
	}
	return m, nil
}

// module implements device.Module.
type module struct {
	*gpu
	handle uintptr
}

func (m *module) Kernel(name string) (k device.Kernel, err error) {
	c := append([]byte(name), 0)
	if err := m.in("cuModuleGetFunction", uintptr(unsafe.Pointer(&k)), m.handle, uintptr(unsafe.Pointer(&c[0]))); err != nil {
		return 0, fmt.Errorf("kernel %s: %w", name, err)
	}
	return k, nil
}

// library is the file name of NVIDIA's driver. The environment variable
// PLX_CUDA overrides it.
const library = "libcuda.so.1"

// functions lists the CUDA driver's functions that this package calls, with
// the version in their names.
const functions = `
cuInit cuDriverGetVersion cuGetErrorName cuDeviceGet cuDeviceGetName cuDeviceGetAttribute cuDevicePrimaryCtxRetain
cuCtxSetCurrent cuMemAlloc_v2 cuMemFree_v2 cuMemGetInfo_v2 cuMemHostAlloc cuMemFreeHost cuMemcpyHtoDAsync_v2
cuMemcpyDtoHAsync_v2 cuLaunchKernel cuModuleLoadDataEx cuModuleGetFunction cuStreamCreate cuStreamDestroy_v2
cuStreamWaitEvent cuStreamBeginCapture_v2 cuStreamEndCapture cuGraphInstantiateWithFlags cuGraphDestroy cuGraphLaunch
cuGraphExecDestroy cuEventCreate cuEventRecord cuEventQuery cuEventDestroy_v2`

// instantiate is the function that makes a recorded graph executable. It came
// with CUDA 11.4. With an older NVIDIA driver, only Stream.Capture fails;
// everything else works.
const instantiate = "cuGraphInstantiateWithFlags"

// calls maps the names of the CUDA driver's functions to their addresses.
type calls map[string]uintptr

// load loads the CUDA driver's library and looks up all functions.
func load() (calls, error) {
	file := cmp.Or(os.Getenv("PLX_CUDA"), library)
	runtime.LockOSThread() // dlerror returns the error of the calling thread, so dlopen and dlerror must run on one thread
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err // no wrapping, because the message of dlopen names the file
	}
	c := calls{}
	for _, name := range strings.Fields(functions) {
		if c[name], err = purego.Dlsym(handle, name); err != nil && name != instantiate {
			return nil, fmt.Errorf("%s has no function %s: its driver is older than CUDA 11.0", file, name)
		}
	}
	return c, nil
}

// do calls a function of the CUDA driver that does not need the GPU's context.
//
//go:uintptrescapes
func (c calls) do(name string, args ...uintptr) error {
	result, _, _ := purego.SyscallN(c[name], args...)
	if int32(result) == 0 {
		return nil
	}
	return c.failed(name, int(int32(result)), "")
}

// failed returns the error for an error code of the CUDA driver. text is
// further information, such as the PTX compiler's messages; it may be empty.
func (c calls) failed(call string, code int, text string) *device.Error {
	var name unsafe.Pointer
	if r, _, _ := purego.SyscallN(c["cuGetErrorName"], uintptr(code), uintptr(unsafe.Pointer(&name))); int32(r) != 0 {
		name = nil
	}
	return &device.Error{Call: call, Code: code, Name: toString(name), Text: text}
}

// toString returns the C string at p as a Go string, or "" if p is nil.
func toString(p unsafe.Pointer) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
