package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/protocol"
)

// claims returns what the job reserves for the worker in slot s (a GPU, a MIG
// device or CPU cores). If neither the UUID nor the PCI address of the GPU is
// known, there is nothing to reserve.
func claims(s slot, shared bool) []protocol.Claim {
	if !s.probed {
		return nil
	}
	gpu := cmp.Or(s.device.GPU.UUID, s.device.GPU.PCIBusID)
	c := protocol.Claim{Device: gpu, Name: s.String(), Shared: shared}
	if s.device.MIG != nil {
		c.Device, c.Whole = s.device.UUID(), gpu
	}
	if c.Device == "" {
		return nil
	}
	return []protocol.Claim{c}
}

// Claims reports whether the job reserves at least one GPU.
func (p Placement) Claims() bool {
	return slices.ContainsFunc(p.Hosts, func(h Host) bool {
		return slices.ContainsFunc(h.Tasks, func(t Task) bool { return len(t.Claims) > 0 })
	})
}

// Busy returns a line for each host on which a worker gets a GPU that another
// process is using.
func (p Placement) Busy(machines []Machine) (lines []string) {
	for _, h := range p.Hosts {
		m := machines[h.Machine]
		var gpus []string
		for _, d := range h.devices(m) {
			if all, busy := d.Users(); busy {
				gpus = append(gpus, fmt.Sprintf("GPU %s by %s", d.Label(), users(all, d.GPU.MemoryUsedMiB)))
			}
		}
		if len(gpus) > 0 {
			lines = append(lines, fmt.Sprintf("host %s: %s", m.Name, strings.Join(gpus, "; ")))
		}
	}
	return lines
}

// devices returns the GPUs and MIG devices of machine m on which h has tasks,
// in the order of their indexes.
func (h Host) devices(m Machine) []gpuprobe.Device {
	return slices.DeleteFunc(m.Report.Devices(), func(d gpuprobe.Device) bool {
		return !slices.ContainsFunc(h.Tasks, func(t Task) bool { return t.Device == deviceName(d) })
	})
}

// Notes returns lines for the user about MIG devices (parts of one GPU). They
// name processes whose MIG device is unknown, and workers that see only their
// own device.
func (p Placement) Notes(machines []Machine, want Options) (lines []string) {
	for _, h := range p.Hosts {
		m := machines[h.Machine]
		if m.Report == nil {
			continue
		}
		several, told := 0, map[int]bool{}
		for _, d := range h.devices(m) {
			if d.MIG == nil {
				continue
			}
			several++
			if all := d.GPU.Unplaced(); len(all) > 0 && !told[d.GPU.Index] {
				told[d.GPU.Index] = true
				lines = append(lines, fmt.Sprintf("note: host %s: nvidia-smi does not report which MIG devices of GPU %d these use: %s", m.Name, d.GPU.Index, users(all, 0)))
			}
		}
		if want.VisibleHost && several > 1 {
			lines = append(lines, fmt.Sprintf("note: host %s: each worker sees its own MIG device only, as device 0: CUDA shows a process no more than one", m.Name))
		}
	}
	return lines
}

// users describes the processes that use a GPU, with their users and memory.
// If the processes are unknown, it describes only used, the GPU's memory in
// use in MiB.
func users(processes []gpuprobe.Process, used int) string {
	if len(processes) == 0 {
		return fmt.Sprintf("processes that the host does not show (%s in use)", mebibytes(used))
	}
	const most = 4
	var all []string
	for _, p := range processes[:min(len(processes), most)] {
		all = append(all, fmt.Sprintf("%s of %s (pid %d, %s)", cmp.Or(p.Name, "a process"), cmp.Or(p.User, "an unknown user"), p.PID, mebibytes(p.MemoryMiB)))
	}
	if more := len(processes) - most; more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}

func mebibytes(n int) string {
	if n == gpuprobe.Unknown {
		return "memory not known"
	}
	return fmt.Sprintf("%d MiB", n)
}
