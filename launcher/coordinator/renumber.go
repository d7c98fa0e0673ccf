package coordinator

import (
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// renumber gives the tasks of the hosts that are in new indices, from 0 and
// without gaps: ranks in the order of the hosts and, on a host, of its local
// ranks; servers likewise. Each host keeps its devices. A host that is not in
// has none. hosts are as in the first generation.
func renumber(hosts []protocol.HostPlan, in func(h int) bool) [][]protocol.TaskSpec {
	next := map[cluster.Role]int{}
	laid := make([][]protocol.TaskSpec, len(hosts))
	for i, h := range hosts {
		if !in(i) {
			continue
		}
		for _, t := range h.Tasks {
			t.Task.Index = next[t.Task.Role]
			next[t.Task.Role]++
			laid[i] = append(laid[i], t)
		}
	}
	return laid
}
