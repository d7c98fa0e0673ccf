//go:build cu && linux

package cgocuda

// gorgonia.org/cu calls cuInit while the program starts, and ends the program
// if cuInit fails. The linker prefers the cuInit defined below, which does
// nothing. All other functions of the driver stay undefined until plx_open has
// loaded the driver's library with RTLD_GLOBAL. The dynamic loader finds each
// function at its first call. The linker option -lcuda of package cu finds the
// empty libcuda.a in this directory, so that a program starts without the
// driver.

/*
#cgo LDFLAGS: -L${SRCDIR} -ldl -Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

CUresult cuInit(unsigned flags) { return CUDA_SUCCESS; }

// plx_open looks up two of the driver's functions as a check: the first one that is called, and the newest one that is required.
static const char *const names[] = {"cuInit", "cuStreamBeginCapture_v2", NULL};

static CUresult (*init)(unsigned);
static int graphs; // 1 if the driver has the function cuGraphInstantiateWithFlags, else 0

// plx_open loads the driver's library. It returns NULL on success, else the loader's error message.
// If the library lacks a function, *missing is the function's name.
static const char *plx_open(const char *file, const char **missing) {
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL)
		return dlerror();
	for (int i = 0; names[i]; i++)
		if (dlsym(library, names[i]) == NULL) {
			*missing = names[i];
			return dlerror();
		}
	init = (CUresult (*)(unsigned))dlsym(library, "cuInit");
	graphs = dlsym(library, "cuGraphInstantiateWithFlags") != NULL;
	return dlopen(file, RTLD_NOW | RTLD_GLOBAL) ? NULL : dlerror();
}

static CUresult plx_init(void) { return init(0); }
static int plx_graphs(void) { return graphs; }

static CUresult plx_launch(uintptr_t kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	uintptr_t stream, void *params, size_t size) {
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	return cuLaunchKernel((CUfunction)kernel, gx, gy, gz, bx, by, bz, 0, (CUstream)stream, NULL, extra);
}

static CUresult plx_begin(uintptr_t stream) {
	return cuStreamBeginCapture((CUstream)stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

// plx_end ends the recording and makes an executable graph. *call is the name of the function that returned the code.
static CUresult plx_end(uintptr_t stream, uintptr_t *graph, const char **call) {
	CUgraph recorded;
	*call = "cuStreamEndCapture";
	CUresult code = cuStreamEndCapture((CUstream)stream, &recorded);
	if (code)
		return code;
	*call = "cuGraphInstantiateWithFlags";
	code = cuGraphInstantiateWithFlags((CUgraphExec *)graph, recorded, 0);
	cuGraphDestroy(recorded); // its error is ignored: a later call of the driver returns it again
	return code;
}

static CUresult plx_replay(uintptr_t graph, uintptr_t stream) { return cuGraphLaunch((CUgraphExec)graph, (CUstream)stream); }
static CUresult plx_drop(uintptr_t graph) { return cuGraphExecDestroy((CUgraphExec)graph); }
*/
import "C"

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"sync"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor/device"
	"gorgonia.org/cu"
)

// library is the file name of NVIDIA's driver. The environment variable
// PLX_CUDA overrides it.
const library = "libcuda.so.1"

var (
	loading sync.Mutex
	loaded  bool
)

// load loads the driver's library, unless an earlier call has loaded it.
func load() error {
	loading.Lock()
	defer loading.Unlock()
	if loaded {
		return nil
	}
	file := cmp.Or(os.Getenv("PLX_CUDA"), library)
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	var missing *C.char
	why := C.plx_open(name, &missing)
	if missing != nil {
		return fmt.Errorf("%s has no function %s: its driver is older than CUDA 11.0", file, C.GoString(missing))
	}
	if why != nil {
		return errors.New(C.GoString(why)) // no wrapping, because the message of dlopen names the file
	}
	loaded = true
	return nil
}

// status is an error code of the driver; it is never 0.
type status int

func (s status) Error() string { return fmt.Sprintf("error %d", int(s)) }

func result(code C.CUresult) error {
	if code == 0 {
		return nil
	}
	return status(code)
}

// refused returns a device.Error for a failed call of the driver. err is a
// status of this package or an error of package cu. The type of cu's errors is
// unexported, so refused reads their integer code by reflection.
func refused(call string, err error) error {
	if err == nil {
		return nil
	}
	code := int(reflect.ValueOf(err).Int())
	var name *C.char
	if C.cuGetErrorName(C.CUresult(code), &name) != 0 {
		name = nil
	}
	return &device.Error{Call: call, Code: code, Name: C.GoString(name)}
}

// Open opens the GPU with the given index among the GPUs that
// CUDA_VISIBLE_DEVICES lists. The error says whether the driver is missing, is
// too old, or has no GPU with this index.
func Open(index int) (device.GPU, error) {
	if err := load(); err != nil {
		return nil, fmt.Errorf("open NVIDIA's driver: %w", err)
	}
	g := &gpu{}
	if err := g.open(index); err != nil {
		return nil, fmt.Errorf("open gpu %d: %w", index, err)
	}
	return g, nil
}

// gpu implements device.GPU with the primary context of the device.
type gpu struct {
	context cu.CUContext
	info    device.Info
}

func (g *gpu) open(index int) (err error) {
	var handle cu.Device
	info := &g.info
	for _, step := range []struct {
		call string
		do   func() error
	}{
		{"cuInit", func() error { return result(C.plx_init()) }},
		{"cuDeviceGet", func() (err error) { handle, err = cu.GetDevice(index); return err }},
		{"cuDeviceGetName", func() (err error) { info.Name, err = handle.Name(); return err }},
		{"cuDeviceGetAttribute", func() (err error) { info.Major, err = handle.Attribute(cu.ComputeCapabilityMajor); return err }},
		{"cuDeviceGetAttribute", func() (err error) { info.Minor, err = handle.Attribute(cu.ComputeCapabilityMinor); return err }},
		{"cuDevicePrimaryCtxRetain", func() (err error) { g.context, err = handle.RetainPrimaryCtx(); return err }},
	} {
		if err := refused(step.call, step.do()); err != nil {
			return err
		}
	}
	info.Driver, info.Through = cu.Version(), "gorgonia.org/cu"
	return nil
}

func (g *gpu) Info() (device.Info, error) {
	i := g.info
	err := g.in("cuMemGetInfo", func() error {
		free, total, err := cu.MemInfo()
		i.Free, i.Total = uint64(free), uint64(total)
		return err
	})
	return i, err
}

// in calls the function do while the GPU's context is current. call is the
// name of the driver's function, for errors.
func (g *gpu) in(call string, do func() error) error {
	return g.Do(func() error { return refused(call, do()) })
}

// Do calls f on a thread whose current context is this GPU's. The driver keeps
// the current context per thread, and Go moves goroutines between threads. Do
// does not use CUContext.Unlock of package cu, because Unlock waits for the
// GPU.
func (g *gpu) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(g.context); err != nil {
		return refused("cuCtxSetCurrent", err)
	}
	return f()
}

func (g *gpu) Alloc(n int) (p device.Pointer, err error) {
	err = g.in("cuMemAlloc", func() error {
		at, err := cu.MemAlloc(int64(n))
		p = device.Pointer(at)
		return err
	})
	return p, err
}

func (g *gpu) Free(p device.Pointer) error {
	return g.in("cuMemFree", func() error { return cu.MemFree(cu.DevicePtr(p)) })
}

func (g *gpu) AllocHost(n int) ([]byte, error) {
	var p unsafe.Pointer
	if err := g.in("cuMemHostAlloc", func() error { return result(C.cuMemHostAlloc(&p, C.size_t(n), C.CU_MEMHOSTALLOC_PORTABLE)) }); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}

func (g *gpu) FreeHost(b []byte) error {
	return g.in("cuMemFreeHost", func() error { return cu.MemFreeHost(unsafe.Pointer(unsafe.SliceData(b))) })
}

func (g *gpu) Load(ptx string) (device.Module, error) {
	complaint := make([]byte, 8192) // the last byte stays 0, to end the C string
	m := &module{gpu: g}
	err := g.in("cuModuleLoadDataEx", func() (err error) {
		m.handle, err = cu.LoadDataEx(ptx, &cu.JITErrorLogBuffer{Buffer: complaint[:len(complaint)-1]})
		return err
	})
	runtime.KeepAlive(complaint) // cu passes the buffer's address to the driver as an integer, which does not keep the buffer alive
	var failed *device.Error
	if errors.As(err, &failed) {
		text, _, _ := bytes.Cut(complaint, []byte{0})
		failed.Text = string(bytes.TrimSpace(text))
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// module implements device.Module.
type module struct {
	*gpu
	handle cu.Module
}

func (m *module) Kernel(name string) (device.Kernel, error) {
	var k cu.Function
	err := m.in("cuModuleGetFunction", func() (err error) { k, err = m.handle.Function(name); return err })
	if err != nil {
		return 0, fmt.Errorf("kernel %s: %w", name, err)
	}
	return *(*device.Kernel)(unsafe.Pointer(&k)), nil // a cu.Function is a struct with one unexported field, the driver's pointer
}

func (g *gpu) NewStream() (device.Stream, error) {
	s := &stream{gpu: g}
	if err := g.in("cuStreamCreate", func() (err error) { s.handle, err = cu.MakeStream(cu.NonBlocking); return err }); err != nil {
		return nil, err
	}
	s.queue = uintptr(unsafe.Pointer(s.handle.C()))
	return s, nil
}

// stream implements device.Stream.
type stream struct {
	*gpu
	handle cu.Stream
	queue  uintptr // the same stream as handle, for calls of the driver that package cu lacks
}

func (s *stream) In(to device.Pointer, from []byte) error {
	p := unsafe.Pointer(unsafe.SliceData(from))
	return s.in("cuMemcpyHtoDAsync", func() error { return cu.MemcpyHtoDAsync(cu.DevicePtr(to), p, int64(len(from)), s.handle) })
}

func (s *stream) Out(to []byte, from device.Pointer) error {
	p := unsafe.Pointer(unsafe.SliceData(to))
	return s.in("cuMemcpyDtoHAsync", func() error { return cu.MemcpyDtoHAsync(p, cu.DevicePtr(from), int64(len(to)), s.handle) })
}

func (s *stream) Launch(k device.Kernel, shape device.Shape, params []byte) error {
	return s.in("cuLaunchKernel", func() error {
		g, b := shape.Grid, shape.Block
		return result(C.plx_launch(C.uintptr_t(k), C.uint(g[0]), C.uint(g[1]), C.uint(g[2]), C.uint(b[0]), C.uint(b[1]), C.uint(b[2]),
			C.uintptr_t(s.queue), unsafe.Pointer(unsafe.SliceData(params)), C.size_t(len(params))))
	})
}

func (s *stream) Record(e device.Event) error {
	return s.in("cuEventRecord", func() error { return e.(*event).handle.Record(s.handle) })
}

func (s *stream) Wait(e device.Event) error {
	return s.in("cuStreamWaitEvent", func() error { return s.handle.Wait(e.(*event).handle, 0) })
}

func (s *stream) Close() error { return s.in("cuStreamDestroy", s.handle.Destroy) }

func (s *stream) Handle() uintptr { return s.queue }

func (s *stream) Capture(put func() error) (device.Graph, error) {
	if C.plx_graphs() == 0 {
		return nil, errors.New("this driver records no graphs: it is older than CUDA 11.4")
	}
	if err := s.in("cuStreamBeginCapture", func() error { return result(C.plx_begin(C.uintptr_t(s.queue))) }); err != nil {
		return nil, err
	}
	failed := put()
	g := &graph{gpu: s.gpu}
	var call *C.char
	err := s.Do(func() error { return result(C.plx_end(C.uintptr_t(s.queue), &g.handle, &call)) })
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, refused(C.GoString(call), err)
	}
	return g, nil
}

func (s *stream) Replay(g device.Graph) error {
	return s.in("cuGraphLaunch", func() error { return result(C.plx_replay(g.(*graph).handle, C.uintptr_t(s.queue))) })
}

// graph implements device.Graph.
type graph struct {
	*gpu
	handle C.uintptr_t
}

func (g *graph) Close() error {
	return g.in("cuGraphExecDestroy", func() error { return result(C.plx_drop(g.handle)) })
}

func (g *gpu) NewEvent() (device.Event, error) {
	e := &event{gpu: g}
	if err := g.in("cuEventCreate", func() (err error) { e.handle, err = cu.MakeEvent(cu.DisableTiming); return err }); err != nil {
		return nil, err
	}
	return e, nil
}

// event implements device.Event.
type event struct {
	*gpu
	handle cu.Event
}

func (e *event) Done() (bool, error) {
	done := true
	err := e.in("cuEventQuery", func() error {
		err := e.handle.Query()
		if err == cu.NotReady {
			done, err = false, nil
		}
		return err
	})
	return done && err == nil, err
}

func (e *event) Close() error {
	return e.in("cuEventDestroy", func() error { return cu.DestroyEvent(&e.handle) })
}
