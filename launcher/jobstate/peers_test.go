package jobstate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Up to sixteen hosts reach each other. Of more, the dials grow little faster than the
// hosts, every host is dialled from many, and the chief's reaches all.
func TestChecksGrowSlowly(t *testing.T) {
	for n, most := range map[int]int{2: 2, 8: 56, 16: 240, 17: 17 * 7, 64: 64 * 8, 256: 256 * 10} {
		m := New(protocol.Plan{Hosts: workerHosts(n)})
		dialled, dials := make([]int, n), 0
		for h := range n {
			for _, p := range m.start.peers(m.view(), h) {
				dialled[p.Index]++
				dials++
				if p.Index == h {
					t.Errorf("%d hosts: host %d dials itself", n, h)
				}
			}
		}
		if dials > most {
			t.Errorf("%d hosts: %d dials, want %d at most", n, dials, most)
		}
		if least := slices.Min(dialled); least < min(n-1, 4) {
			t.Errorf("%d hosts: a host is dialled from %d", n, least)
		}
		if reached := len(m.start.peers(m.view(), 0)); reached != n-1 || dialled[0] != n-1 {
			t.Errorf("%d hosts: the chief's dials %d and is dialled from %d", n, reached, dialled[0])
		}
	}
}

func workerHosts(n int) (all []protocol.HostPlan) {
	for i := range n {
		task := cluster.Task{Role: cluster.Worker, Index: i}
		all = append(all, protocol.HostPlan{Host: fmt.Sprint("h", i), Tasks: []protocol.TaskSpec{{Task: task}}})
	}
	return all
}
