//go:build cuda && linux

package gpuprobe

// Local loads the CUDA driver library at its first call, so that one binary
// serves machines with and without a driver. This takes three steps:
//
//   - gorgonia.org/cu asks the linker for libcuda. scripts/check-cuda.sh gives
//     it an empty one, so that the binary does not name the library as one it
//     needs to start. The linker leaves the symbols open, and exports them,
//     without which it would bind them to address 0.
//   - gorgonia.org/cu calls cuInit while the program starts, and ends the
//     program if that fails. The cuInit below, which the linker prefers, is
//     the one it finds. It does nothing and succeeds.
//   - plx_cuda_open loads the library for all to see and calls the real
//     cuInit. From then on the open symbols are found at their first call.

/*
#cgo LDFLAGS: -ldl -Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files
#include <dlfcn.h>
#include <stddef.h>

int cuInit(unsigned int flags) { return 0; }

// plx_cuda_open returns cuInit's result, or -1 with *why if there is no
// driver library.
static int plx_cuda_open(const char **why) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	int (*init)(unsigned int);
	if (library == NULL) {
		*why = dlerror();
		return -1;
	}
	init = (int (*)(unsigned int))dlsym(library, "cuInit");
	if (init == NULL) {
		*why = dlerror();
		return -1;
	}
	return init(0);
}
*/
import "C"

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"gorgonia.org/cu"
)

// cudaNoDevice is the driver's CUDA_ERROR_NO_DEVICE.
const cudaNoDevice = 100

var openCUDA = sync.OnceValues(func() (devices bool, err error) {
	var why *C.char
	switch code := C.plx_cuda_open(&why); code {
	case 0:
		return true, nil
	case cudaNoDevice:
		return false, nil
	case -1:
		return false, fmt.Errorf("load the CUDA driver: %s", clean(C.GoString(why)))
	default:
		return false, fmt.Errorf("start the CUDA driver: error %d", code)
	}
})

// Local returns the devices that the CUDA driver of this machine reports, in the
// order of their PCI bus addresses. It sees only the devices that
// CUDA_VISIBLE_DEVICES allows, and reports neither their users nor their use.
func Local() ([]GPU, error) {
	there, err := openCUDA()
	if err != nil || !there {
		return nil, err
	}
	count, err := cu.NumDevices()
	if err != nil {
		return nil, fmt.Errorf("count the CUDA devices: %w", err)
	}
	gpus := make([]GPU, 0, count)
	for i := range count {
		g, err := localGPU(cu.Device(i))
		if err != nil {
			return nil, fmt.Errorf("read CUDA device %d: %w", i, err)
		}
		gpus = append(gpus, g)
	}
	slices.SortFunc(gpus, func(a, b GPU) int { return cmp.Compare(a.PCIBusID, b.PCIBusID) })
	for i := range gpus {
		gpus[i].Index = i
	}
	return gpus, nil
}

func localGPU(d cu.Device) (GPU, error) {
	g := GPU{MemoryUsedMiB: Unknown, UtilizationPercent: Unknown}
	name, err := d.Name()
	if err != nil {
		return g, err
	}
	memory, err := d.TotalMem()
	if err != nil {
		return g, err
	}
	id, err := d.UUID()
	if err != nil {
		return g, err
	}
	place, err := d.Attributes(cu.PciDomainID, cu.PciBusID, cu.PciDeviceID, cu.ComputeCapabilityMajor, cu.ComputeCapabilityMinor)
	if err != nil {
		return g, err
	}
	g.Name, g.UUID, g.MemoryTotalMiB = clean(name), "GPU-"+id.String(), int(memory>>20)
	g.PCIBusID = fmt.Sprintf("%04x:%02x:%02x.0", place[0], place[1], place[2])
	g.ComputeCapability = fmt.Sprintf("%d.%d", place[3], place[4])
	return g, nil
}
