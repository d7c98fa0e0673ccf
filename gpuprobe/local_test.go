package gpuprobe

import (
	"os"
	"strings"
	"testing"
)

// On a machine without the driver, and in a build without the tag, Local says
// what is missing; it neither stops the program nor invents a device.
func TestLocal(t *testing.T) {
	gpus, err := Local()
	if os.Getenv("PLX_FAKE_CUDA") != "" { // scripts/check-cuda.sh, with testdata/libcuda.c
		if err != nil || len(gpus) != 2 || gpus[0].Name != "Stand-in B" || gpus[0].PCIBusID != "0000:10:00.0" ||
			gpus[1].UUID != "GPU-01010101-0101-0101-0101-010101010101" || gpus[1].MemoryTotalMiB != 16384 {
			t.Errorf("%+v %v", gpus, err)
		}
		return
	}
	if _, statErr := os.Stat("/proc/driver/nvidia/version"); statErr == nil && err == nil {
		for i, g := range gpus {
			if g.Index != i || g.Name == "" || g.MemoryTotalMiB <= 0 || canonicalBus(g.PCIBusID) != g.PCIBusID {
				t.Errorf("%+v", g)
			}
		}
		return
	}
	if len(gpus) != 0 {
		t.Errorf("devices without a driver: %+v", gpus)
	}
	if err != nil && !strings.Contains(err.Error(), "CUDA") {
		t.Errorf("%v", err)
	}
	t.Logf("%v", err)
}
