package gpuprobe

import (
	"encoding/json"
)

// Unknown is the value of a number that the tool did not report. In JSON it
// becomes null.
const Unknown = -1

// Thresholds for GPU.Busy. The package documentation says when a GPU is busy.
const (
	BusyMemoryMiB          = 1024
	BusyUtilizationPercent = 10
	idleMemoryMiB          = 256
)

// Tool is the source of a Report's list of GPUs, or the reason why there is no
// list.
type Tool string

const (
	// ToolSMI means that nvidia-smi worked. The list of GPUs may be empty.
	ToolSMI Tool = "nvidia-smi"
	// ToolROCm and ToolAMD mean that AMD's rocm-smi or amd-smi worked.
	ToolROCm Tool = "rocm-smi"
	ToolAMD  Tool = "amd-smi"
	// ToolProc means that there is no nvidia-smi, and that the GPUs were read
	// from /proc/driver/nvidia.
	ToolProc Tool = "proc"
	// ToolNone means that there is neither a tool nor /proc/driver/nvidia: the
	// host has no GPU that a program could use.
	ToolNone Tool = "none"
	// ToolBroken means that the vendor's tool failed, as GPUError describes.
	// The GPUs, if any, were read from /proc/driver/nvidia.
	ToolBroken Tool = "broken"
	// ToolHung means that the vendor's tool did not finish within its time
	// limit. The GPUs, if any, were read from /proc/driver/nvidia.
	ToolHung Tool = "hung"
)

// Report is the result of probing one host.
type Report struct {
	// CPUs is the number of cores that a process started over the same
	// connection may use (its CPU affinity); 0 if unknown.
	CPUs int `json:"cpus"`
	// MemoryMiB is the size of the machine's main memory in MiB; 0 if unknown.
	MemoryMiB int `json:"memory_mib"`
	// GPUs lists the GPUs in index order. After Probe it is never nil.
	GPUs []GPU `json:"gpus"`
	// Vendor is the maker of the GPUs. If only GPUError is set, it is the
	// maker of the GPU or tool in that error. It is empty if there are no GPUs
	// and no error.
	Vendor Vendor `json:"gpu_vendor,omitempty"`
	// GPUTool is the source of the list GPUs, or the reason why the list is
	// empty.
	GPUTool Tool `json:"gpu_tool"`
	// GPUError describes a problem with the tool, the driver or the list of
	// processes; empty means no problem. GPUs may be complete even if GPUError
	// is set.
	GPUError string `json:"gpu_error"`
	// Note is information that may surprise the user, although nothing is
	// wrong; usually empty.
	Note string `json:"gpu_note,omitempty"`
	// Driver is the version of the GPUs' driver, such as "535.129.03" for
	// NVIDIA; empty if unknown.
	Driver string `json:"driver"`
	// CUDA is the newest CUDA version that the driver supports, such as
	// "12.4"; empty if unknown. nvidia-smi reports it since driver 410.
	CUDA string `json:"cuda_version"`
	// Visible is the value that the vendor's variable, such as
	// CUDA_VISIBLE_DEVICES, has in the host's own environment; empty if the
	// variable is not set.
	Visible string `json:"visible_devices,omitempty"`
	// BLAS is the file name of the best BLAS library on the host, such as
	// "libopenblas.so.0", and BLASPath is its path. Both are empty if the host
	// has no BLAS library.
	BLAS     string `json:"blas"`
	BLASPath string `json:"blas_path"`
	// CPUModel, Arch (such as "x86_64") and Kernel (a version) are only shown
	// to the user; empty or "-" if unknown.
	CPUModel string `json:"cpu_model"`
	Arch     string `json:"arch"`
	Kernel   string `json:"kernel"`
}

// GPU is one GPU of a host, with the index that the vendor's tool gives it.
// nvidia-smi orders GPUs by PCI bus address, so its indices equal those of
// CUDA with CUDA_DEVICE_ORDER=PCI_BUS_ID.
type GPU struct {
	Index              int       `json:"index"`
	RuntimeID          string    `json:"runtime_id,omitempty"` // number that AMD's runtime gives the GPU; empty if the number is Index
	UUID               string    `json:"uuid"`
	Name               string    `json:"name"`
	MemoryTotalMiB     int       `json:"memory_total_mib"`    // size of the GPU's memory; Unknown if the tool does not report it
	MemoryUsedMiB      int       `json:"memory_used_mib"`     // memory in use; Unknown if the tool does not report it
	UtilizationPercent int       `json:"utilization_percent"` // share of time in which the GPU computed; Unknown if the tool does not report it
	Busy               bool      `json:"busy"`                // the GPU is in use, as defined in the package documentation
	Driver             string    `json:"driver"`
	PCIBusID           string    `json:"pci_bus_id"`
	ComputeCapability  string    `json:"compute_capability"`     // such as "9.0" for NVIDIA or "gfx942" for AMD; empty if unknown, as with NVIDIA drivers before 510
	ComputeMode        string    `json:"compute_mode,omitempty"` // compute mode as the tool prints it; empty if unknown
	Processes          []Process `json:"processes"`              // compute processes on the GPU and on its MIG devices
	// MIG lists the MIG devices into which the GPU is divided. Programs cannot
	// use a GPU in MIG mode as a whole.
	MIG []MIG `json:"mig,omitempty"`
	// MIGMode is true if MIG mode is on, even if the GPU has no MIG devices.
	MIGMode bool `json:"mig_mode,omitempty"`
	// Fault is the reason why no program can use the GPU, for example that it
	// is lost or needs a reset; empty if programs can use it.
	Fault string `json:"fault,omitempty"`
}

// Process is a compute process on a GPU. User is empty if the host's shell
// does not see the process, for example because it runs in a container.
type Process struct {
	PID       int    `json:"pid"`
	Name      string `json:"name"`
	User      string `json:"user,omitempty"`
	MemoryMiB int    `json:"memory_mib"` // size of the process's memory on the GPU; Unknown if the tool does not report it
}

// MIG is one of the MIG devices into which a GPU is divided.
type MIG struct {
	Index   int    `json:"index"`
	Profile string `json:"profile"`
	UUID    string `json:"uuid"`
	// Processes lists the GPU's processes that use this MIG device, as far as
	// nvidia-smi reports the MIG device of a process (see [GPU.Unplaced]).
	Processes []Process `json:"processes,omitempty"`
}

// MarshalJSON encodes the GPU, with null for numbers that are Unknown.
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

// MarshalJSON encodes the process, with null for a MemoryMiB that is Unknown.
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
