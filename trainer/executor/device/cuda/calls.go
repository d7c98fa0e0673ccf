//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package cuda

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/plx-run/plx/trainer/executor/device"
)

// library is the driver's file. PLX_CUDA names another one.
const library = "libcuda.so.1"

// function is a function of the driver.
type function int

// The functions that are called.
const (
	initialise function = iota
	version
	errorName
	deviceGet
	deviceName
	deviceMemory
	deviceFact
	retain
	setCurrent
	alloc
	free
	info
	hostAlloc
	hostFree
	copyIn
	copyOut
	copyWithin
	set
	launch
	loadModule
	unload
	kernel
	streamMake
	streamClose
	streamWait
	begin
	end
	instantiate
	dropGraph
	replay
	drop
	eventMake
	eventRecord
	eventDone
	eventClose
)

// names are the functions in the library.
var names = [...]string{
	initialise:   "cuInit",
	version:      "cuDriverGetVersion",
	errorName:    "cuGetErrorName",
	deviceGet:    "cuDeviceGet",
	deviceName:   "cuDeviceGetName",
	deviceMemory: "cuDeviceTotalMem_v2",
	deviceFact:   "cuDeviceGetAttribute",
	retain:       "cuDevicePrimaryCtxRetain",
	setCurrent:   "cuCtxSetCurrent",
	alloc:        "cuMemAlloc_v2",
	free:         "cuMemFree_v2",
	info:         "cuMemGetInfo_v2",
	hostAlloc:    "cuMemHostAlloc",
	hostFree:     "cuMemFreeHost",
	copyIn:       "cuMemcpyHtoDAsync_v2",
	copyOut:      "cuMemcpyDtoHAsync_v2",
	copyWithin:   "cuMemcpyDtoDAsync_v2",
	set:          "cuMemsetD8Async",
	launch:       "cuLaunchKernel",
	loadModule:   "cuModuleLoadDataEx",
	unload:       "cuModuleUnload",
	kernel:       "cuModuleGetFunction",
	streamMake:   "cuStreamCreate",
	streamClose:  "cuStreamDestroy_v2",
	streamWait:   "cuStreamWaitEvent",
	begin:        "cuStreamBeginCapture_v2",
	end:          "cuStreamEndCapture",
	instantiate:  "cuGraphInstantiateWithFlags",
	dropGraph:    "cuGraphDestroy",
	replay:       "cuGraphLaunch",
	drop:         "cuGraphExecDestroy",
	eventMake:    "cuEventCreate",
	eventRecord:  "cuEventRecord",
	eventDone:    "cuEventQuery",
	eventClose:   "cuEventDestroy_v2",
}

// calls are the addresses of the functions.
type calls [len(names)]uintptr

// load opens the driver and finds all functions.
func load() (*calls, error) {
	file := library
	if other := os.Getenv("PLX_CUDA"); other != "" {
		file = other
	}
	runtime.LockOSThread() // the loader keeps the cause of a failure per thread
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err // the loader's message names the file
	}
	c := &calls{}
	for f, name := range names {
		c[f], err = purego.Dlsym(handle, name)
		if err != nil && function(f) != instantiate { // only graphs need that one
			return nil, fmt.Errorf("%s has no function %s: its driver is older than CUDA 11.0", file, name)
		}
	}
	return c, nil
}

// do calls a function of the driver that needs no context.
//
//go:uintptrescapes
func (c *calls) do(f function, args ...uintptr) error {
	result, _, _ := purego.SyscallN(c[f], args...)
	if int32(result) == 0 {
		return nil
	}
	return c.failed(f, int(int32(result)), "")
}

// failed is the error for a code. text is what else is known.
func (c *calls) failed(f function, code int, text string) *device.Error {
	var name unsafe.Pointer
	if r, _, _ := purego.SyscallN(c[errorName], uintptr(code), uintptr(unsafe.Pointer(&name))); int32(r) != 0 {
		name = nil
	}
	return &device.Error{Call: names[f], Code: code, Name: toString(name), Text: text}
}

// toString copies a C string, up to a limit.
func toString(p unsafe.Pointer) string {
	if p == nil {
		return ""
	}
	for n := range 1 << 16 {
		if *(*byte)(unsafe.Add(p, n)) == 0 {
			return string(unsafe.Slice((*byte)(p), n))
		}
	}
	return ""
}
