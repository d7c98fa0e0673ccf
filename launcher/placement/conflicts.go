package placement

import (
	"fmt"
	"slices"
	"strings"
)

// Conflicts describes the GPUs that somebody uses, and the hosts that are one machine.
func (p Placement) Conflicts(machines []Machine) (lines []string, err error) {
	twins, err := p.twins(machines)
	return append(p.inUse(machines), twins...), err
}

// inUse describes, one line per host, the GPUs that get a worker although somebody
// uses them. The job is not refused: the author of the resource file may know.
func (p Placement) inUse(machines []Machine) (lines []string) {
	for _, h := range p.Hosts {
		m := machines[h.Machine]
		var gpus []string
		for _, g := range m.Report.GPUs {
			if device := slot(g.Index).String(); g.Busy && slices.ContainsFunc(h.Tasks, func(t Task) bool { return t.Device == device }) {
				gpus = append(gpus, fmt.Sprintf("GPU %d by %s", g.Index, g.UsedBy()))
			}
		}
		if len(gpus) > 0 {
			lines = append(lines, fmt.Sprintf("host %s: its workers share GPUs that are in use: %s", m.Name, strings.Join(gpus, "; ")))
		}
	}
	return lines
}

// twins describes the hosts that are one machine under two names. It is an error if
// tasks of both would use the same GPU.
func (p Placement) twins(machines []Machine) (lines []string, err error) {
	seen := map[string]Host{} // by machine ID
	for _, h := range p.Hosts {
		m := machines[h.Machine]
		if m.ID == "" {
			continue
		}
		first, twice := seen[m.ID]
		if !twice {
			seen[m.ID] = h
			continue
		}
		_, name, _ := strings.Cut(m.ID, "/")
		line := fmt.Sprintf("hosts %s and %s are one machine (%s)", machines[first.Machine].Name, m.Name, name)
		if gpu := sharedGPU(first, h); gpu != "" {
			return nil, fmt.Errorf("%s, and both would use %s", line, gpu)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// sharedGPU returns a GPU that tasks of both hosts use, or "".
func sharedGPU(a, b Host) string {
	for _, x := range a.Tasks {
		for _, y := range b.Tasks {
			if x.Visible != "" && x.Device == y.Device {
				return x.Device
			}
		}
	}
	return ""
}
