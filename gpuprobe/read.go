package gpuprobe

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// read makes a Report from the sections of the script's output. limit is the
// time limit of each call of nvidia-smi in the script; error messages contain
// it.
func read(all sections, limit time.Duration) Report {
	machine := strings.Fields(all.first("machine") + " - -")
	_, memory, _ := strings.Cut(all.first("memory"), ":")
	_, model, _ := strings.Cut(all.first("cpu-model"), ":")
	r := Report{
		CPUs: max(0, amount(all.first("cpus"))), MemoryMiB: max(0, amount(strings.TrimSpace(memory))) / 1024,
		CPUModel: strings.TrimSpace(model), Arch: machine[0], Kernel: machine[1],
	}
	r.BLAS, r.BLASPath = blasChoice(all.find("blas").lines)
	r = readVendors(r, all, limit)
	for i := range r.GPUs {
		g := &r.GPUs[i]
		g.setBusy(r.Driver)
		r.Driver = cmp.Or(r.Driver, g.Driver)
	}
	if r.GPUs == nil {
		r.GPUs = []GPU{}
	}
	return r
}

// readVendors adds the GPUs of the first vendor that has GPUs on the host, or
// whose tool (such as nvidia-smi) fails. If there is no such vendor, the
// returned report has no GPUs. It then contains an error if a vendor has
// reported one.
func readVendors(host Report, all sections, limit time.Duration) (r Report) {
	for i, f := range vendors() {
		one := host
		one.Vendor = f.vendor
		f.read(&one, all, limit)
		switch {
		case len(one.GPUs) > 0 || one.GPUTool == ToolBroken || one.GPUTool == ToolHung:
			return one
		case i == 0 || r.GPUTool == ToolNone && one.GPUTool != ToolNone, r.GPUError == "" && one.GPUError != "":
			r = one
		}
	}
	if r.GPUError == "" {
		r.Vendor = ""
	}
	return r
}

// readNVIDIA adds the NVIDIA GPUs of a host, their processes and the driver's
// versions to its Report.
func readNVIDIA(r *Report, all sections, limit time.Duration) {
	r.Visible, r.Driver = all.first("visible"), procDriver(all.first("driver"))
	readGPUs(r, all, limit)
	readProcesses(r, all, limit)
	r.CUDA = cudaVersion(all.find("version").lines)
	if other := all.first("amd-beside"); other != "" && len(r.GPUs) > 0 {
		r.Note = fmt.Sprintf("the host has NVIDIA GPUs, which are used, and AMD's tool %s, which was not run", other)
	}
}

// readGPUs sets the report's list of NVIDIA GPUs, and GPUTool, the source of
// the list.
func readGPUs(r *Report, all sections, limit time.Duration) {
	inProc := procGPUs(all)
	if !all.has("tool") {
		r.GPUs, r.GPUTool = inProc, ToolProc
		if len(inProc) == 0 {
			r.GPUTool, r.GPUError = ToolNone, noDriver(all)
		}
		return
	}
	answer, gpus, notes := readQuery(all)
	hardware := len(inProc) > 0 || len(all.find("pci").lines) > 0
	switch {
	case answer.status == "late":
		r.GPUs, r.GPUTool, r.GPUError = inProc, ToolHung, fmt.Sprintf("nvidia-smi did not answer within %gs", limit.Seconds())
	case len(gpus) > 0:
		r.GPUs, r.GPUTool, r.GPUError = gpus, ToolSMI, notes
		if answer.status != "0" {
			r.GPUs = addLost(gpus, inProc)
			r.GPUError = fmt.Sprintf("nvidia-smi ended with status %s: %s", answer.status, notes)
		}
	case len(inProc) == 0 && foundNone(notes), notes == "" && answer.status == "0" && !hardware:
		r.GPUTool = ToolSMI
	case strings.Contains(notes, "communicate with the NVIDIA driver") && !hardware:
		r.GPUTool = ToolNone // The host has no NVIDIA hardware, so the tool is only a part of the machine image.
	default:
		r.GPUs, r.GPUTool = inProc, ToolBroken
		r.GPUError = fmt.Sprintf("nvidia-smi failed with status %s: %s", answer.status, cmp.Or(notes, "it printed nothing"))
	}
}

// queries lists the names of the script's sections for GPU queries. The script
// makes the queries in reverse order, until one succeeds. Each query has one
// optional field more than the query before it in this list.
var queries = []string{"gpus-without-mig", "gpus-without-cap", "gpus"}

// readQuery parses the section of the last GPU query that the script made. It
// returns that section, the GPUs in index order, and the lines of the section
// that do not describe a GPU.
func readQuery(all sections) (answer section, gpus []GPU, notes string) {
	optional := max(0, slices.IndexFunc(queries, all.has))
	answer = all.find(queries[optional])
	var other []string
	for _, line := range answer.lines {
		g, ok := parseGPU(line, optional)
		switch {
		case !ok:
			other = append(other, clean(line))
		case !slices.ContainsFunc(gpus, func(o GPU) bool { return o.Index == g.Index }):
			gpus = append(gpus, g)
		}
	}
	slices.SortFunc(gpus, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	devices := parseList(all.find("list").lines)
	for i := range gpus {
		gpus[i].MIG = devices[gpus[i].UUID]
	}
	return answer, gpus, clean(strings.Join(other, "; "))
}

// foundNone reports whether notes is nvidia-smi's message that it works but
// finds no GPU.
func foundNone(notes string) bool {
	low := strings.ToLower(notes)
	return strings.Contains(low, "no devices were found") || strings.Contains(low, "no supported gpus were found")
}

// noDriver returns a message if the host has NVIDIA hardware, because the
// driver is then missing. It returns "" if the host has no NVIDIA hardware.
func noDriver(all sections) string {
	devices := all.find("pci").lines
	if len(devices) == 0 {
		return ""
	}
	return fmt.Sprintf("%d NVIDIA device(s) on the PCI bus (%s) but no driver: install it or load it with modprobe nvidia",
		len(devices), clean(strings.Join(devices, ", ")))
}

// addLost adds the GPUs in /proc/driver/nvidia that nvidia-smi did not list.
// It marks them as faulty and gives them unused indices.
func addLost(gpus, inProc []GPU) []GPU {
	next := 0
	for _, lost := range inProc {
		if slices.ContainsFunc(gpus, func(g GPU) bool { return g.PCIBusID == lost.PCIBusID }) {
			continue
		}
		for slices.ContainsFunc(gpus, func(g GPU) bool { return g.Index == next }) {
			next++
		}
		lost.Index, lost.Fault = next, "nvidia-smi cannot reach it"
		gpus = append(gpus, lost)
	}
	slices.SortFunc(gpus, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	return gpus
}

// readProcesses assigns the compute processes that nvidia-smi listed to their
// GPUs.
func readProcesses(r *Report, all sections, limit time.Duration) {
	apps := all.find("apps")
	if !all.has("apps") || r.GPUTool != ToolSMI {
		return
	}
	users := owners(all)
	for _, line := range apps.lines {
		uuid, p, ok := parseProcess(line)
		i := slices.IndexFunc(r.GPUs, func(g GPU) bool { return g.owns(uuid) })
		if !ok || i < 0 {
			continue
		}
		// nvidia-smi shows no name for a process in another pid namespace. The
		// pid then means a different process here, so its owner is not looked
		// up.
		if p.Name != "" {
			p.User = users[p.PID]
		}
		r.GPUs[i].add(uuid, p)
	}
	trouble := ""
	if apps.status == "late" {
		trouble = fmt.Sprintf("nvidia-smi did not list the processes within %gs", limit.Seconds())
	} else if status, err := strconv.Atoi(apps.status); len(r.GPUs) > 0 && (err != nil || status != 0) {
		trouble = fmt.Sprintf("nvidia-smi failed to list the processes: status %s: %s", apps.status, clean(strings.Join(apps.lines, "; ")))
	}
	if r.GPUError = cmp.Or(r.GPUError, trouble); trouble != "" && r.GPUError != trouble {
		r.GPUError += "; " + trouble
	}
}

// owns reports whether uuid is the UUID of the GPU or of one of its MIG
// devices.
func (g GPU) owns(uuid string) bool {
	return uuid != "" && (g.UUID == uuid || slices.ContainsFunc(g.MIG, func(m MIG) bool { return m.UUID == uuid }))
}

// add adds a process to the GPU, and to the MIG device with the given uuid if
// there is one.
func (g *GPU) add(uuid string, p Process) {
	g.Processes = append(g.Processes, p)
	if i := slices.IndexFunc(g.MIG, func(m MIG) bool { return m.UUID == uuid }); i >= 0 {
		g.MIG[i].Processes = append(g.MIG[i].Processes, p)
	}
}

// setBusy sets Busy as described in the package documentation. It sets Driver to
// driver if the GPU's own query did not report a version.
func (g *GPU) setBusy(driver string) {
	g.Busy = len(g.Processes) > 0 ||
		g.MemoryUsedMiB > BusyMemoryMiB ||
		g.UtilizationPercent >= BusyUtilizationPercent && (g.MemoryUsedMiB == Unknown || g.MemoryUsedMiB > idleMemoryMiB)
	g.Driver = cmp.Or(g.Driver, driver)
}
