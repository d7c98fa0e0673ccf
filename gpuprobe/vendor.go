package gpuprobe

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Vendor is a maker of GPUs. The empty one counts as NVIDIA.
type Vendor string

// The vendors whose GPUs are found. What a vendor is stands in the table vendors alone.
const (
	NVIDIA Vendor = "NVIDIA"
	AMD    Vendor = "AMD"
)

// vendorFacts is what differs between vendors, beside the calls of their tools in probe.sh.
type vendorFacts struct {
	vendor Vendor
	// read fills in what a host's answer tells of the vendor's GPUs.
	read func(r *Report, all sections, limit time.Duration)
	// variable chooses the devices that a program of the vendor's runtime sees.
	variable string
	// renumbered are variables that choose again, by the numbers that the devices have after
	// the first choice. So they count from 0.
	renumbered []string
	trained    bool   // plx's trainer computes on them
	torch      string // what PyTorch is built for to compute on them
	// use are shell commands, the first word of which is the vendor's tool. They print how much
	// each GPU is used, for parseUse, and fail if there is no GPU.
	use      string
	parseUse func(text string) []Use
	remedy   string
}

// vendors has the vendors in the order in which a host's GPUs are looked for: those of the
// first that has any are used.
var vendors = sync.OnceValue(func() []vendorFacts {
	return []vendorFacts{{
		vendor: NVIDIA, read: readNVIDIA, variable: "CUDA_VISIBLE_DEVICES", trained: true, torch: "CUDA",
		// The first fields are those that parseGPU does not know. Without a list of processes the rest counts.
		use: "nvidia-smi --query-gpu=temperature.gpu,power.draw,index,uuid,pci.bus_id,driver_version,memory.total,memory.used,utilization.gpu,compute_mode,name " +
			"--format=csv,noheader,nounits && { nvidia-smi --query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name --format=csv,noheader,nounits || :; }",
		parseUse: parseNVIDIAUse,
		// A driver that was updated under a running kernel is the usual cause.
		remedy: "reboot the host or load the driver again: it and its library must be of one version",
	}, {
		// HIP obeys CUDA_VISIBLE_DEVICES if HIP_VISIBLE_DEVICES is not set, and some programs
		// want the two to be equal.
		vendor: AMD, read: readAMD, variable: "ROCR_VISIBLE_DEVICES", renumbered: []string{"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}, torch: "ROCm",
		use: "rocm-smi --showproductname --showuniqueid --showmeminfo vram --showuse --showbus --showpids --showtemp --showpower --json", parseUse: parseROCmUse,
		remedy: "see what rocm-smi or amd-smi prints there, and look whether the driver amdgpu is loaded and the user may open /dev/kfd",
	}}
})

func (v Vendor) facts() vendorFacts {
	all := vendors()
	return all[max(0, slices.IndexFunc(all, func(f vendorFacts) bool { return f.vendor == v }))]
}

// Variable is the name of the variable by which the vendor's programs choose devices.
func (v Vendor) Variable() string { return v.facts().variable }

// Trained reports whether plx's trainer computes on the vendor's GPUs.
func (v Vendor) Trained() bool { return v.facts().trained }

// Torch is what PyTorch must be built for to compute on the vendor's GPUs.
func (v Vendor) Torch() string { return v.facts().torch }

// Remedy says what helps if the vendor's tool fails.
func (v Vendor) Remedy() string { return v.facts().remedy }

// Visible returns the variables, NAME=VALUE, by which a program sees the devices ids, with
// commas between them, and no others of the vendor. Without ids it sees none of any vendor.
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
