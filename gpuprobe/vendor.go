package gpuprobe

import (
	"cmp"
	"maps"
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
	// use is a shell command that prints how much each GPU is used, for parseUse, which returns
	// per cent by UUID or bus address. It fails if there is no GPU.
	use      string
	parseUse func(text string) map[string]int
	remedy   string
}

// vendors has the vendors in the order in which a host's GPUs are looked for: those of the
// first that has any are used.
var vendors = sync.OnceValue(func() []vendorFacts {
	return []vendorFacts{{
		vendor: NVIDIA, read: readNVIDIA, variable: "CUDA_VISIBLE_DEVICES", trained: true, torch: "CUDA",
		use: "nvidia-smi --query-gpu=uuid,utilization.gpu --format=csv,noheader,nounits", parseUse: parseNVIDIAUse,
		// A driver that was updated under a running kernel is the usual cause.
		remedy: "reboot the host or load the driver again: it and its library must be of one version",
	}, {
		// HIP obeys CUDA_VISIBLE_DEVICES if HIP_VISIBLE_DEVICES is not set, and some programs
		// want the two to be equal.
		vendor: AMD, read: readAMD, variable: "ROCR_VISIBLE_DEVICES", renumbered: []string{"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}, torch: "ROCm",
		use: "rocm-smi --showuniqueid --showbus --showuse --json", parseUse: parseROCmUse,
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

// UseScript is a shell script that prints how much each GPU of the host is used, for ParseUse.
// It is quick: it asks one tool. The folders are those in which probe.sh looks too.
func UseScript() string {
	var commands []string
	for _, f := range vendors() {
		commands = append(commands, f.use)
	}
	return "PATH=$PATH:/usr/bin:/usr/local/bin:/usr/local/nvidia/bin:/usr/local/cuda/bin:/opt/bin:/run/nvidia/driver/usr/bin:/usr/lib/wsl/lib:/opt/rocm/bin:/run/current-system/sw/bin\n" +
		strings.Join(commands, " ||\n") + "\n"
}

// ParseUse returns how much GPUs are used, in per cent by UUID or, without one, by bus address.
// It leaves out those of which this is not known, as in MIG mode.
func ParseUse(text string) map[string]int {
	use := map[string]int{}
	for _, f := range vendors() {
		maps.Copy(use, f.parseUse(text))
	}
	return use
}

// parseNVIDIAUse reads lines "UUID, PERCENT".
func parseNVIDIAUse(text string) map[string]int {
	use := map[string]int{}
	for line := range strings.Lines(text) {
		uuid, percent, _ := strings.Cut(strings.TrimSpace(line), ", ")
		if n, err := strconv.Atoi(percent); err == nil {
			use[uuid] = n
		}
	}
	return use
}

// parseROCmUse reads the JSON of rocm-smi.
func parseROCmUse(text string) map[string]int {
	use := map[string]int{}
	gpus, _ := readROCmSMI(sections{{name: "rocm", lines: strings.Split(text, "\n")}})
	for _, g := range gpus {
		if id := cmp.Or(g.UUID, g.PCIBusID); id != "" && g.UtilizationPercent != Unknown {
			use[id] = g.UtilizationPercent
		}
	}
	return use
}

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
