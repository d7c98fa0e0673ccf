package gpuprobe

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

// The driver's devices stand in a report only where nothing else found any.
func TestAddLocal(t *testing.T) {
	two := []GPU{{Index: 0, UUID: "GPU-a"}, {Index: 1, UUID: "GPU-b"}}
	smi, proc := []GPU{{Index: 0, UUID: "GPU-a", MemoryUsedMiB: 4}}, []GPU{{Index: 0, UUID: "GPU-c"}}
	broken := "nvidia-smi: Failed to initialize NVML"
	for name, c := range map[string]struct {
		report Report
		local  []GPU
		err    error
		want   Report
	}{
		"no tool":       {Report{GPUs: []GPU{}, GPUTool: ToolNone}, two, nil, Report{GPUs: two, Vendor: NVIDIA, GPUTool: ToolCUDA}},
		"a broken tool": {Report{GPUs: []GPU{}, GPUTool: ToolBroken, GPUError: broken}, two, nil, Report{GPUs: two, Vendor: NVIDIA, GPUTool: ToolCUDA, GPUError: broken}},
		"nvidia-smi":    {Report{GPUs: smi, GPUTool: ToolSMI}, two, nil, Report{GPUs: smi, GPUTool: ToolSMI}},
		"/proc":         {Report{GPUs: proc, GPUTool: ToolProc}, two, nil, Report{GPUs: proc, GPUTool: ToolProc}},
		"no driver":     {Report{GPUs: []GPU{}, GPUTool: ToolNone}, two, errors.New("no driver"), Report{GPUs: []GPU{}, GPUTool: ToolNone}},
		"no device":     {Report{GPUs: []GPU{}, GPUTool: ToolNone}, nil, nil, Report{GPUs: []GPU{}, GPUTool: ToolNone}},
	} {
		c.report.addLocal(func() ([]GPU, error) { return c.local, c.err })
		if !reflect.DeepEqual(c.report, c.want) {
			t.Errorf("%s: %+v, want %+v", name, c.report, c.want)
		}
	}
}

// On a machine without the driver, and in a build without the tag, Local says
// what is missing; it neither stops the program nor invents a device.
func TestLocal(t *testing.T) {
	gpus, err := Local()
	if os.Getenv("PLX_FAKE_CUDA") != "" { // scripts/check-cuda.sh, with testdata/cuda/libcuda.c
		if err != nil || len(gpus) != 2 || gpus[0].Name != "Stand-in B" || gpus[0].PCIBusID != "0000:10:00.0" || gpus[0].ComputeCapability != "8.0" ||
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
