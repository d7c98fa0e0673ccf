package launcher

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/placement"
)

// trainerDevice returns the value of the program's own --device flag, or its
// default "auto". If foreign is true, the program does not link plx's trainer,
// and the result is empty.
func trainerDevice(args []string, foreign bool) string {
	if foreign {
		return ""
	}
	choice, _ := argument(args, "device")
	return cmp.Or(choice, "auto")
}

// computesOn describes the device on which a task of plx's trainer computes,
// for a table. choice is the value of the flag --device. The result is empty
// for a parameter server, which uses no device. The result is "-" for a worker
// that demands a GPU and has none.
func computesOn(choice string, m placement.Machine, t placement.Task) string {
	hasGPU, known := trainedOn(t)
	switch {
	case t.Device != "" && (choice == "cpu" || choice == "auto" && known && !hasGPU):
		return "cpu"
	case choice == "gpu" && known && !hasGPU:
		return "-"
	}
	switch d, found := m.GPU(t); {
	case found && d.MIG != nil:
		return fmt.Sprintf("%s (MIG %s of %s)", t.Device, d.MIG.Profile, cmp.Or(d.GPU.Name, "a GPU"))
	case found && d.GPU.Name != "":
		return fmt.Sprintf("%s (%s)", t.Device, d.GPU.Name)
	}
	return t.Device
}

// trainedOn reports whether task t has a GPU that plx's trainer can use. known
// is false while plx has not found out.
func trainedOn(t placement.Task) (hasGPU, known bool) {
	hasGPU, known = t.GivenGPU()
	return hasGPU && t.Vendor.Trained(), known
}

// deviceNotes returns notes on workers whose GPUs plx's trainer will not use,
// and on workers whose devices it will reject.
func deviceNotes(choice string, machines []placement.Machine, p placement.Placement) []string {
	return append(untrained(choice, machines, p), mixed(choice, machines, p)...)
}

// untrained returns a note that names the hosts with GPUs of a vendor that
// plx's trainer does not support.
func untrained(choice string, machines []placement.Machine, p placement.Placement) []string {
	var names []string
	var vendor gpuprobe.Vendor
	for _, h := range p.Hosts {
		for _, t := range h.Tasks {
			if t.VisibleIDs != "" && !t.Vendor.Trained() && !slices.Contains(names, machines[h.Machine].Name) {
				names, vendor = append(names, machines[h.Machine].Name), t.Vendor
			}
		}
	}
	if choice != "auto" || len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("note: host %s: plx's trainer does not compute on GPUs of %s: the workers there compute on the CPU", console.Fold(names), vendor)}
}

func mixed(choice string, machines []placement.Machine, p placement.Placement) []string {
	first := map[bool]string{} // the first worker with a GPU (key true) and the first without one (key false), each with its host
	for _, h := range p.Hosts {
		for _, t := range h.Tasks {
			hasGPU, known := trainedOn(t)
			if known && first[hasGPU] == "" {
				first[hasGPU] = fmt.Sprintf("%s on %s", t.Task, machines[h.Machine].Name)
			}
		}
	}
	switch without, with := first[false], first[true]; {
	case choice == "gpu" && without != "":
		return []string{fmt.Sprintf("note: %s has no gpu that plx's trainer can use and will fail: the program's --device gpu demands one for every worker", without)}
	case choice == "auto" && without != "" && with != "":
		return []string{fmt.Sprintf("note: %s computes on a gpu and %s on the cpu, which plx's trainer refuses: give every worker a gpu, or the program --device cpu", with, without)}
	}
	return nil
}
