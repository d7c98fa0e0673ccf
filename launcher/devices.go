package launcher

import (
	"cmp"
	"fmt"

	"github.com/plx-run/plx/launcher/placement"
)

// trainerDevice returns what the workers of a program that links plx's trainer are to
// compute on: the value of --device, or its default. It is empty for a foreign program,
// of which plx does not know it.
func trainerDevice(args []string, foreign bool) string {
	if foreign {
		return ""
	}
	choice, _ := argument(args, "device")
	return cmp.Or(choice, "auto")
}

// computesOn describes what a task of a program that links plx's trainer computes on.
// It is empty for a server, which computes on no device, and "-" for a worker that
// lacks the GPU it demands.
func computesOn(choice string, m placement.Machine, t placement.Task) string {
	hasGPU, known := t.GivenGPU()
	switch {
	case choice == "cpu" && t.Device != "":
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

// deviceNotes reports workers whose devices plx's trainer will refuse.
func deviceNotes(choice string, machines []placement.Machine, p placement.Placement) []string {
	first := map[bool]string{} // a worker without a GPU, and one with a GPU
	for _, h := range p.Hosts {
		for _, t := range h.Tasks {
			hasGPU, known := t.GivenGPU()
			if known && first[hasGPU] == "" {
				first[hasGPU] = fmt.Sprintf("%s on %s", t.Task, machines[h.Machine].Name)
			}
		}
	}
	switch without, with := first[false], first[true]; {
	case choice == "gpu" && without != "":
		return []string{fmt.Sprintf("note: %s has no gpu and will fail: the program's --device gpu demands one for every worker", without)}
	case choice == "auto" && without != "" && with != "":
		return []string{fmt.Sprintf("note: %s computes on a gpu and %s on the cpu, which plx's trainer refuses: give every worker a gpu, or the program --device cpu", with, without)}
	}
	return nil
}
