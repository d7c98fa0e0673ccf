//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/plx-run/plx/trainer/executor/device"
)

// Attributes of a device, as the driver numbers them.
const (
	capabilityMajor = 75
	capabilityMinor = 76
)

// Open opens a GPU by its index among those that CUDA_VISIBLE_DEVICES leaves.
// The error says whether the driver is missing, too old, or has no such GPU.
func Open(index int) (*device.GPU, error) {
	c, err := load()
	if err != nil {
		return nil, fmt.Errorf("open NVIDIA's driver: %w", err)
	}
	g := &gpu{calls: c}
	info, err := g.open(index)
	if err != nil {
		return nil, fmt.Errorf("open gpu %d: %w", index, err)
	}
	return &device.GPU{Info: info, Memory: g, Host: g, Work: g, Context: g}, nil
}

// gpu is a device with its primary context. It implements device.Memory,
// device.Host, device.Work and device.Context.
type gpu struct {
	*calls
	context uintptr
}

func (g *gpu) open(index int) (info device.Info, err error) {
	var driver, handle, major, minor int32
	var memory uint64
	name := make([]byte, 256)
	for _, call := range []func() error{
		func() error { return g.do(initialise, 0) },
		func() error { return g.do(version, uintptr(unsafe.Pointer(&driver))) },
		func() error { return g.do(deviceGet, uintptr(unsafe.Pointer(&handle)), uintptr(index)) },
		func() error {
			return g.do(deviceName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)-1), uintptr(handle))
		},
		func() error { return g.do(deviceMemory, uintptr(unsafe.Pointer(&memory)), uintptr(handle)) },
		func() error {
			return g.do(deviceFact, uintptr(unsafe.Pointer(&major)), capabilityMajor, uintptr(handle))
		},
		func() error {
			return g.do(deviceFact, uintptr(unsafe.Pointer(&minor)), capabilityMinor, uintptr(handle))
		},
		func() error { return g.do(retain, uintptr(unsafe.Pointer(&g.context)), uintptr(handle)) },
	} {
		if err := call(); err != nil {
			return info, err
		}
	}
	return device.Info{Name: toString(unsafe.Pointer(&name[0])), Major: int(major), Minor: int(minor), Driver: int(driver), Total: memory}, nil
}

// in calls a function of the driver in the device's context.
//
//go:uintptrescapes
func (g *gpu) in(f function, args ...uintptr) error {
	return g.checked(f, g.code(f, args...))
}

// checked turns a code into an error.
func (g *gpu) checked(f function, code int) error {
	if code == 0 {
		return nil
	}
	return g.failed(f, code, "")
}

// code is in, and returns the driver's code.
//
//go:uintptrescapes
func (g *gpu) code(f function, args ...uintptr) int { return g.quick(f, args...) }

// block is the arguments of one call.
type block [12]uintptr

var blocks = sync.Pool{New: func() any { return new(block) }}

// quick is code for calls that are made in every step: it allocates nothing. So no
// argument may point to a variable on the stack.
func (g *gpu) quick(f function, args ...uintptr) int {
	b := blocks.Get().(*block)
	defer blocks.Put(b)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b[0] = g.context
	if result, _, _ := purego.SyscallN(g.calls[setCurrent], b[:1]...); int32(result) != 0 {
		return int(int32(result))
	}
	result, _, _ := purego.SyscallN(g.calls[f], b[:copy(b[:], args)]...)
	return int(int32(result))
}

func (g *gpu) Enter() error {
	runtime.LockOSThread()
	err := g.checked(setCurrent, g.quick(setCurrent, g.context))
	if err != nil {
		runtime.UnlockOSThread()
	}
	return err
}

func (g *gpu) Leave() { runtime.UnlockOSThread() }

func (g *gpu) Alloc(n int) (p device.Pointer, err error) {
	err = g.in(alloc, uintptr(unsafe.Pointer(&p)), uintptr(n))
	return p, err
}

func (g *gpu) Free(p device.Pointer) error { return g.in(free, uintptr(p)) }

func (g *gpu) Available() (free uint64, err error) {
	var total uint64
	err = g.in(info, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	return free, err
}

// portable makes pinned memory pinned for all contexts.
const portable = 1

func (g *gpu) AllocHost(n int) ([]byte, error) {
	var p unsafe.Pointer
	if err := g.in(hostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(n), portable); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}

func (g *gpu) FreeHost(b []byte) error {
	return g.in(hostFree, uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// Options of the PTX compiler, as the driver numbers them.
const (
	errorBuffer     = 5
	errorBufferSize = 6
)

func (g *gpu) Load(ptx []byte) (device.Module, error) {
	source := append(ptx[:len(ptx):len(ptx)], 0)
	complaint := make([]byte, 8192)
	options := []uint32{errorBuffer, errorBufferSize}
	values := []uintptr{uintptr(unsafe.Pointer(&complaint[0])), uintptr(len(complaint) - 1)}
	m := &module{gpu: g}
	code := g.code(loadModule, uintptr(unsafe.Pointer(&m.handle)), uintptr(unsafe.Pointer(&source[0])),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0])))
	runtime.KeepAlive(complaint)
	if code != 0 {
		return nil, g.failed(loadModule, code, strings.TrimSpace(toString(unsafe.Pointer(&complaint[0]))))
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
	if err := m.in(kernel, uintptr(unsafe.Pointer(&k)), m.handle, uintptr(unsafe.Pointer(&c[0]))); err != nil {
		return 0, fmt.Errorf("kernel %s: %w", name, err)
	}
	return k, nil
}

func (m *module) Unload() error { return m.in(unload, m.handle) }
