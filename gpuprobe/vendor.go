package gpuprobe

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Vendor is a maker of GPUs. The empty value counts as NVIDIA.
type Vendor string

// The vendors that gpuprobe supports. The table vendors has everything that
// differs between them.
const (
	NVIDIA Vendor = "NVIDIA"
	AMD    Vendor = "AMD"
)

// vendorFacts holds everything that differs between vendors, except how
// probe.sh calls their tools.
type vendorFacts struct {
	vendor Vendor
	// read adds the vendor's GPUs to a Report, from the sections of the probe
	// script's output.
	read func(r *Report, all sections, limit time.Duration)
	// variable is the name of the environment variable that selects the
	// devices that the vendor's runtime shows to a program.
	variable string
	// renumbered lists environment variables that select a subset of the
	// devices that variable selects. They use new numbers for these devices,
	// which start at 0.
	renumbered []string
	trained    bool   // plx's trainer can compute on the vendor's GPUs
	torch      string // platform for which PyTorch must be built: "CUDA" or "ROCm"
	// use is a shell command that prints the utilisation of each GPU; parseUse
	// parses its output. The command fails if there is no GPU. Its first word
	// is the vendor's program, such as nvidia-smi.
	use      string
	parseUse func(text string) []Use
	remedy   string
}

// vendors lists the vendors in the order in which a probe looks for their
// GPUs. It uses the GPUs of the first vendor that has any on the host.
var vendors = sync.OnceValue(func() []vendorFacts {
	return []vendorFacts{{
		vendor: NVIDIA, read: readNVIDIA, variable: "CUDA_VISIBLE_DEVICES", trained: true, torch: "CUDA",
		// The first two fields, temperature and power, are the ones that
		// parseGPU does not parse. If nvidia-smi cannot list the processes,
		// ParseUse still returns the other values.
		use: "nvidia-smi --query-gpu=temperature.gpu,power.draw,index,uuid,pci.bus_id,driver_version,memory.total,memory.used,utilization.gpu,compute_mode,name " +
			"--format=csv,noheader,nounits && { nvidia-smi --query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name --format=csv,noheader,nounits || :; }",
		parseUse: parseNVIDIAUse,
		// The usual cause of a failing nvidia-smi is a driver package that was
		// updated while the old kernel module stayed loaded.
		remedy: "reboot the host or reload the driver: the driver and its library must have the same version",
	}, {
		// HIP uses CUDA_VISIBLE_DEVICES if HIP_VISIBLE_DEVICES is not set, and
		// some programs require both to be equal.
		vendor: AMD, read: readAMD, variable: "ROCR_VISIBLE_DEVICES", renumbered: []string{"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}, torch: "ROCm",
		use: "rocm-smi --showproductname --showuniqueid --showmeminfo vram --showuse --showbus --showpids --showtemp --showpower --json", parseUse: parseROCmUse,
		remedy: "run rocm-smi or amd-smi on the host, and check that the driver amdgpu is loaded and that the user may open /dev/kfd",
	}}
})

func (v Vendor) facts() vendorFacts {
	all := vendors()
	return all[max(0, slices.IndexFunc(all, func(f vendorFacts) bool { return f.vendor == v }))]
}

// Variable returns the name of the environment variable that selects devices
// for the vendor's runtime, such as CUDA_VISIBLE_DEVICES.
func (v Vendor) Variable() string { return v.facts().variable }

// Trained reports whether plx's trainer can compute on the vendor's GPUs.
func (v Vendor) Trained() bool { return v.facts().trained }

// Torch returns the platform for which PyTorch must be built to use the
// vendor's GPUs: "CUDA" or "ROCm".
func (v Vendor) Torch() string { return v.facts().torch }

// Remedy returns advice for the user if the vendor's tool fails.
func (v Vendor) Remedy() string { return v.facts().remedy }

// Visible returns the environment variables, as NAME=VALUE, that limit a
// program to the devices in ids, a comma-separated list. If ids is empty, the
// variables hide the devices of all vendors.
func (v Vendor) Visible(ids string) (variables []string) {
	if ids == "" {
		for _, f := range vendors() {
			for _, name := range append([]string{f.variable}, f.renumbered...) {
				if !slices.Contains(variables, name+"=") {
					variables = append(variables, name+"=")
				}
			}
		}
		return variables
	}
	f := v.facts()
	var numbers []string
	for i := range strings.Count(ids, ",") + 1 {
		numbers = append(numbers, strconv.Itoa(i))
	}
	variables = append(variables, f.variable+"="+ids)
	for _, name := range f.renumbered {
		variables = append(variables, name+"="+strings.Join(numbers, ","))
	}
	return append(variables, "PLX_GPU_VENDOR="+string(f.vendor))
}
