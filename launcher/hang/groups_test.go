package hang

import (
	"slices"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

func TestGroups(t *testing.T) {
	all := []Doing{{cluster.Task{Role: cluster.PS, Index: 1}, "h2", "serves"}, {cluster.Task{Role: cluster.PS}, "h1", "serves"}}
	for i := range 12 {
		d := Doing{Task: cluster.Task{Role: cluster.Worker, Index: 11 - i}, Host: "h1", What: "all_reduce (train.py:41)"}
		switch 11 - i {
		case 3:
			d.What = "time.sleep (train.py:38)"
		case 5:
			d.What = "python3 (pid 12) waits for 3.2s"
		case 8:
			d.What = "python3 (pid 7) waits for 1m4s"
		case 9:
			d.Host, d.What = "h2", "python3 (pid 7) runs"
		}
		all = append(all, d)
	}
	want := []string{"ranks 0-2,4,6-7,10-11: all_reduce (train.py:41)", "rank 3 on h1: time.sleep (train.py:38)", "ranks 5,8: python3 waits",
		"rank 9 on h2: python3 (pid 7) runs", "servers 0-1: serves"}
	if got := Groups(all); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestVerdictGroups has Python tell where each task is: the verdict has that in place of what
// the kernel tells, also of the culprit.
func TestVerdictGroups(t *testing.T) {
	j := newJob(8)
	j.mesh(3)
	j.first(3, protocol.Thread{Wait: protocol.Sleeps})
	for i := range j.tasks {
		j.tasks[i].Seen.Places = []string{"all_reduce (train.py:41)"}
	}
	j.tasks[3].Seen.Places = []string{"time.sleep (train.py:38)", "get (data.py:7)"}
	j.tasks[7].Exit = &protocol.Exit{Code: 2}
	got := explain(j.tasks, 0)
	want := []string{"ranks 0-2,4-6: all_reduce (train.py:41)", "rank 3 on h3: time.sleep (train.py:38); get (data.py:7)", "rank 7 on h7: it exited with status 2 while others still run"}
	if got.Culprit != "worker:3" || !slices.Equal(got.Waits, want) {
		t.Errorf("%+v", got)
	}
}
