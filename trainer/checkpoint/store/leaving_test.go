package store

import (
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
)

// Files written by tasks that will leave get their second copy on a host that
// stays.
func TestFilesOfLeavingTasksAreCopiedToStayingHosts(t *testing.T) {
	j := opened(t, t.TempDir(), shape{workers: 4, hosts: []string{"a", "b", "c", "a"}})
	r := j.chief().chief.roster
	for name, test := range map[string]struct {
		leaving []cluster.Task
		want    map[cluster.Task]cluster.Task // nobody: no second copy
		lost    []cluster.Task
	}{
		"two hosts leave": {[]cluster.Task{worker(1), worker(2)},
			map[cluster.Task]cluster.Task{worker(1): worker(0), worker(2): worker(0)}, nil},
		"one host leaves": {[]cluster.Task{worker(2)},
			map[cluster.Task]cluster.Task{worker(0): worker(1), worker(3): worker(1), worker(1): worker(0), worker(2): worker(0)}, nil},
		"a task of a folder that stays": {[]cluster.Task{worker(0), worker(1), worker(2)},
			map[cluster.Task]cluster.Task{worker(1): worker(3), worker(2): worker(3)}, nil},
		"all leave": {[]cluster.Task{worker(0), worker(1), worker(2), worker(3)}, nil,
			[]cluster.Task{worker(0), worker(1), worker(2), worker(3)}},
	} {
		plan := newCopyPlan(r, test.leaving)
		for rank := range 4 {
			of := worker(rank)
			lost := false
			for _, l := range test.lost {
				lost = lost || l == of
			}
			got, kept := plan.keeper(of)
			if want, ok := test.want[of]; ok != (got != nil) || ok && *got != want || kept == lost {
				t.Errorf("%s: %s has %v, kept %t; want %v, %t, lost %t", name, of, got, kept, want, ok, lost)
			}
		}
	}
}
