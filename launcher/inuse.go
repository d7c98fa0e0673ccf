package launcher

import (
	"fmt"
	"slices"
	"strings"
)

// inUse says, a line for each host, which GPUs get a worker although somebody uses
// them, and who. That is no reason to refuse the job: who wrote the resource file may
// know about it.
func (p placement) inUse(machines []machine) (lines []string) {
	for _, h := range p.hosts {
		m := machines[h.machine]
		var gpus []string
		for _, g := range m.report.GPUs {
			device := slot(g.Index).String()
			if g.Busy && slices.ContainsFunc(h.tasks, func(t placedTask) bool { return t.device == device }) {
				gpus = append(gpus, fmt.Sprintf("GPU %d by %s", g.Index, g.UsedBy()))
			}
		}
		if len(gpus) > 0 {
			lines = append(lines, fmt.Sprintf("host %s: its workers share what is in use: %s", m.Name, strings.Join(gpus, "; ")))
		}
	}
	return lines
}
