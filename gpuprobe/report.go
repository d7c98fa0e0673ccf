package gpuprobe

import (
	"encoding/json"
)

// Unknown is the value of a number that the tool did not report. JSON output
// writes null for it.
const Unknown = -1

// Thresholds of Busy, as the package documentation describes.
const (
	BusyMemoryMiB          = 1024
	BusyUtilizationPercent = 10
	idleMemoryMiB          = 256
)

// Tool is the source of a Report's list of GPUs.
type Tool string

// The values of Tool.
const (
	// ToolSMI: nvidia-smi answered. The list of GPUs may be empty.
	ToolSMI Tool = "nvidia-smi"
	// ToolROCm and ToolAMD: AMD's rocm-smi or amd-smi answered.
	ToolROCm Tool = "rocm-smi"
	ToolAMD  Tool = "amd-smi"
	// ToolProc: there is no nvidia-smi, the GPUs are those of
	// /proc/driver/nvidia.
	ToolProc Tool = "proc"
	// ToolNone: neither is there. The host has no GPU that a program could use.
	ToolNone Tool = "none"
	// ToolBroken: the vendor's tool failed; GPUError says how. The GPUs are those of
	// /proc/driver/nvidia, if any.
	ToolBroken Tool = "broken"
	// ToolHung: the vendor's tool did not answer in its time. The GPUs are
	// those of /proc/driver/nvidia, if any.
	ToolHung Tool = "hung"
)

// Report is the result of probing one host.
type Report struct {
	// CPUs is the number of cores that a process started over the same
	// connection may use (its affinity); 0 if unknown.
	CPUs int `json:"cpus"`
	// MemoryMiB is the machine's main memory; 0 if unknown.
	MemoryMiB int `json:"memory_mib"`
	// GPUs is in index order. It is never nil after Probe.
	GPUs []GPU `json:"gpus"`
	// Vendor made the GPUs, or that of which GPUError tells. It is empty without either.
	Vendor Vendor `json:"gpu_vendor,omitempty"`
	// GPUTool is the source of GPUs, or says why there is none.
	GPUTool Tool `json:"gpu_tool"`
	// GPUError describes what is wrong with the tool, the driver or the list of
	// processes; empty means nothing. GPUs may be complete even if it is set.
	GPUError string `json:"gpu_error"`
	// Note tells what the user may not expect although nothing is wrong; empty means nothing.
	Note string `json:"gpu_note,omitempty"`
	// Driver is the version of the GPUs' driver, such as "535.129.03" of NVIDIA's; empty if
	// unknown.
	Driver string `json:"driver"`
	// CUDA is the newest CUDA version that the driver supports, such as "12.4";
	// empty if unknown. nvidia-smi reports it since driver 410.
	CUDA string `json:"cuda_version"`
	// Visible is what the host's own environment sets as the vendor's Variable; empty if it
	// sets none.
	Visible string `json:"visible_devices,omitempty"`
	// BLAS is the file name of the best BLAS library of the host, such as
	// "libopenblas.so.0", and BLASPath its path. Both are empty without one.
	BLAS     string `json:"blas"`
	BLASPath string `json:"blas_path"`
	// CPUModel, Arch ("x86_64") and Kernel are for people to read.
	CPUModel string `json:"cpu_model"`
	Arch     string `json:"arch"`
	Kernel   string `json:"kernel"`
}

// GPU is one device as the vendor's tool numbers them. nvidia-smi does it by PCI bus address,
// so the numbers are equal to CUDA's under CUDA_DEVICE_ORDER=PCI_BUS_ID.
type GPU struct {
	Index              int       `json:"index"`
	RuntimeID          string    `json:"runtime_id,omitempty"` // number that programs know it by; empty: Index
	UUID               string    `json:"uuid"`
	Name               string    `json:"name"`
	MemoryTotalMiB     int       `json:"memory_total_mib"`    // Unknown if the tool does not report it
	MemoryUsedMiB      int       `json:"memory_used_mib"`     // Unknown if the tool does not report it
	UtilizationPercent int       `json:"utilization_percent"` // Unknown if the tool does not report it
	Busy               bool      `json:"busy"`                // in use, by the rule in the package documentation
	Driver             string    `json:"driver"`
	PCIBusID           string    `json:"pci_bus_id"`
	ComputeCapability  string    `json:"compute_capability"`     // such as "9.0", or "gfx942" of AMD's; empty if unknown, as before driver 510
	ComputeMode        string    `json:"compute_mode,omitempty"` // as the tool reports it; empty if it does not
	Processes          []Process `json:"processes"`              // the GPU's compute processes
	// MIG lists the devices into which the GPU is divided. A GPU in MIG mode
	// cannot be used as a whole.
	MIG []MIG `json:"mig,omitempty"`
	// MIGMode reports whether MIG mode is on, with or without devices.
	MIGMode bool `json:"mig_mode,omitempty"`
	// Fault is the reason why no program can use the GPU (lost, needs a reset);
	// empty if programs can.
	Fault string `json:"fault,omitempty"`
}

// Process is one compute process on a GPU. User is empty if the host's shell
// does not see the process, for example in a container.
type Process struct {
	PID       int    `json:"pid"`
	Name      string `json:"name"`
	User      string `json:"user,omitempty"`
	MemoryMiB int    `json:"memory_mib"` // memory of the GPU; Unknown if the tool does not report it
}

// MIG is one of the devices into which a GPU is divided.
type MIG struct {
	Index   int    `json:"index"`
	Profile string `json:"profile"`
	UUID    string `json:"uuid"`
	// Processes are those of the GPU's processes of which nvidia-smi tells that they use
	// this device. It does not tell of all, see [GPU.Unplaced].
	Processes []Process `json:"processes,omitempty"`
}

// MarshalJSON writes null for the numbers that are Unknown.
func (g GPU) MarshalJSON() ([]byte, error) {
	type plain GPU
	if g.Processes == nil {
		g.Processes = []Process{}
	}
	return json.Marshal(struct {
		plain
		Total *int `json:"memory_total_mib"`
		Used  *int `json:"memory_used_mib"`
		Util  *int `json:"utilization_percent"`
	}{plain(g), known(g.MemoryTotalMiB), known(g.MemoryUsedMiB), known(g.UtilizationPercent)})
}

// MarshalJSON writes null for a memory use that is Unknown.
func (p Process) MarshalJSON() ([]byte, error) {
	type plain Process
	return json.Marshal(struct {
		plain
		Memory *int `json:"memory_mib"`
	}{plain(p), known(p.MemoryMiB)})
}

func known(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}
