package jobstate

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// naivelyRenumbered writes all tasks that are left into one list, sorts it by
// host and local rank, and counts.
func naivelyRenumbered(hosts []protocol.HostPlan, in map[int]bool) [][]protocol.TaskSpec {
	laid := make([][]protocol.TaskSpec, len(hosts))
	for _, role := range []cluster.Role{cluster.PS, cluster.Worker} {
		type place struct {
			host int
			spec protocol.TaskSpec
		}
		var all []place
		for i := len(hosts) - 1; i >= 0; i-- {
			for _, t := range hosts[i].Tasks {
				if in[i] && t.Task.Role == role {
					all = append(all, place{i, t})
				}
			}
		}
		slices.SortStableFunc(all, func(a, b place) int {
			return (a.host-b.host)*1000 + a.spec.LocalRank - b.spec.LocalRank
		})
		for n, p := range all {
			p.spec.Task.Index = n
			laid[p.host] = append(laid[p.host], p.spec)
		}
	}
	return laid
}

func TestRenumber(t *testing.T) {
	for seed := range int64(500) {
		r := rand.New(rand.NewSource(seed))
		var hosts []protocol.HostPlan
		in := map[int]bool{}
		workers, servers := 0, 0
		for i := range r.Intn(7) {
			var h protocol.HostPlan
			if r.Intn(2) == 0 {
				h.Tasks = append(h.Tasks, protocol.TaskSpec{Task: cluster.Task{Role: cluster.PS, Index: servers}})
				servers++
			}
			for rank := range r.Intn(5) {
				h.Tasks = append(h.Tasks, protocol.TaskSpec{Task: cluster.Task{Role: cluster.Worker, Index: workers},
					LocalRank: rank, Devices: fmt.Sprint(r.Intn(8))})
				workers++
			}
			hosts, in[i] = append(hosts, h), r.Intn(3) > 0
		}
		all := New(protocol.Plan{Hosts: hosts}).hosts
		got, want := renumber(all, func(h int) bool { return in[h] }), naivelyRenumbered(hosts, in)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %v of %+v\ngot  %+v\nwant %+v", seed, in, hosts, got, want)
		}
		for i, tasks := range renumber(all, func(int) bool { return true }) {
			if !reflect.DeepEqual(tasks, hosts[i].Tasks) {
				t.Fatalf("seed %d: with all hosts there, host %d has %+v, want %+v", seed, i, tasks, hosts[i].Tasks)
			}
		}
	}
}
