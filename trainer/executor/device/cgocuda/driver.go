//go:build cuda && linux

package cgocuda

// gorgonia.org/cu calls cuInit while the program starts, and ends the program if
// that fails. The linker prefers the cuInit below, which does nothing. The other
// symbols stay open until plx_open has loaded the library for all to see. The loader
// binds each at its first call.

/*
#cgo LDFLAGS: -ldl -Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

CUresult cuInit(unsigned flags) { return CUDA_SUCCESS; }

// The symbols that this package and, for it, gorgonia.org/cu call.
static const char *const names[] = {
	"cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuDeviceGet", "cuDeviceGetName",
	"cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2", "cuMemFree_v2",
	"cuMemGetInfo_v2", "cuMemHostAlloc", "cuMemFreeHost", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
	"cuLaunchKernel", "cuModuleLoadDataEx",
	"cuModuleGetFunction", "cuStreamCreate", "cuStreamDestroy_v2", "cuStreamWaitEvent", "cuStreamBeginCapture_v2",
	"cuStreamEndCapture", "cuGraphDestroy", "cuGraphLaunch", "cuGraphExecDestroy", "cuEventCreate", "cuEventRecord",
	"cuEventQuery", "cuEventDestroy_v2", NULL};

static CUresult (*init)(unsigned);
static int graphs; // the driver has cuGraphInstantiateWithFlags

// plx_open loads the driver. It returns NULL, or what the loader says; *missing is
// then a function that the library lacks, or NULL.
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

// plx_end makes a graph of what was recorded. call is the last function that it called.
static CUresult plx_end(uintptr_t stream, uintptr_t *graph, const char **call) {
	CUgraph recorded;
	*call = "cuStreamEndCapture";
	CUresult code = cuStreamEndCapture((CUstream)stream, &recorded);
	if (code)
		return code;
	*call = "cuGraphInstantiateWithFlags";
	code = cuGraphInstantiateWithFlags((CUgraphExec *)graph, recorded, 0);
	CUresult dropped = cuGraphDestroy(recorded);
	if (code || !dropped)
		return code;
	*call = "cuGraphDestroy";
	return dropped;
}

static CUresult plx_replay(uintptr_t graph, uintptr_t stream) { return cuGraphLaunch((CUgraphExec)graph, (CUstream)stream); }
static CUresult plx_drop(uintptr_t graph) { return cuGraphExecDestroy((CUgraphExec)graph); }
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor/device"
)

// library is the driver's file. PLX_CUDA names another one.
const library = "libcuda.so.1"

var (
	loading sync.Mutex
	loaded  bool
)

// load opens the driver, if no earlier call has opened it.
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
		return errors.New(C.GoString(why)) // the loader's message names the file
	}
	loaded = true
	return nil
}

// status is a code of the driver that is not 0.
type status int

func (s status) Error() string { return fmt.Sprintf("error %d", int(s)) }

func result(code C.CUresult) error {
	if code == 0 {
		return nil
	}
	return status(code)
}

// codeOf is the driver's code in an error of this file or of package cu. cu does not
// export the type of its errors, which is an int.
func codeOf(err error) int {
	if v := reflect.ValueOf(err); v.CanInt() {
		return int(v.Int())
	}
	return 0
}

// refused is the error of a call of the driver.
func refused(call string, err error) error {
	if err == nil {
		return nil
	}
	var name *C.char
	if C.cuGetErrorName(C.CUresult(codeOf(err)), &name) != 0 {
		name = nil
	}
	return &device.Error{Call: call, Code: codeOf(err), Name: C.GoString(name)}
}

func start() error { return result(C.plx_init()) }

// allocHost returns memory that is pinned for all contexts.
func allocHost(n int) (p unsafe.Pointer, err error) {
	err = result(C.cuMemHostAlloc(&p, C.size_t(n), C.CU_MEMHOSTALLOC_PORTABLE))
	return p, err
}

func launch(k device.Kernel, s device.Shape, stream uintptr, params []byte) error {
	g, b := s.Grid, s.Block
	return result(C.plx_launch(C.uintptr_t(k), C.uint(g[0]), C.uint(g[1]), C.uint(g[2]), C.uint(b[0]), C.uint(b[1]), C.uint(b[2]),
		C.uintptr_t(stream), unsafe.Pointer(unsafe.SliceData(params)), C.size_t(len(params))))
}

func canRecord() bool { return C.plx_graphs() != 0 }

func beginRecording(stream uintptr) error { return result(C.plx_begin(C.uintptr_t(stream))) }

func endRecording(stream uintptr) (graph uintptr, call string, err error) {
	var made C.uintptr_t
	var last *C.char
	err = result(C.plx_end(C.uintptr_t(stream), &made, &last))
	return uintptr(made), C.GoString(last), err
}

func replay(graph, stream uintptr) error {
	return result(C.plx_replay(C.uintptr_t(graph), C.uintptr_t(stream)))
}

func drop(graph uintptr) error { return result(C.plx_drop(C.uintptr_t(graph))) }
