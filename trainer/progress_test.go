package trainer

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/owner"
)

// replicaOf is a worker's of a job in a synchronisation mode, as far as its words
// need one.
func replicaOf(t *testing.T, mode string, rank, workers int) *Replica {
	t.Helper()
	sync, err := owner.ParseSync(mode)
	if err != nil {
		t.Fatal(err)
	}
	contract := cluster.Contract{Task: cluster.Task{Role: cluster.Worker, Index: rank}, WorldSize: workers}
	return &Replica{job: &Job{contract: contract}, step: 28, cut: []uint64{28, 90},
		declared: owner.Declaration{Sync: sync, Workers: make([]owner.Range, workers)}}
}

func TestWhoSpeaksForWhom(t *testing.T) {
	for _, c := range []struct {
		mode          string
		rank, workers int
		group, groups int
		speaks, cuts  bool
	}{
		{"sync", 0, 3, 0, 1, true, false},
		{"sync", 2, 3, 0, 1, false, false},
		{"async", 0, 3, 0, 3, true, true},
		{"async", 2, 3, 2, 3, true, false},
		{"ssp:4", 1, 2, 1, 2, true, false},
		{"group:2", 0, 5, 0, 2, true, true},
		{"group:2", 1, 5, 0, 2, false, false},
		{"group:2", 2, 5, 1, 2, true, false},
		{"group:2", 4, 5, 1, 2, false, false},
		{"backup:1", 0, 3, 0, 1, false, true}, // it may be late itself
		{"backup:1", 2, 3, 0, 1, false, false},
	} {
		r := replicaOf(t, c.mode, c.rank, c.workers)
		r.standing = r.stands()
		if want := (standing{28, c.group, c.groups, c.speaks}); r.standing != want {
			t.Errorf("%s, worker:%d of %d: %+v, want %+v", c.mode, c.rank, c.workers, r.standing, want)
		}
		r.job.replica.Store(r)
		r.job.steps.Store(31)
		want := cluster.ControlMessage{Kind: cluster.Heartbeat, Step: 31, From: 28, Group: c.group, Groups: c.groups}
		if c.cuts {
			want.Cut = []int64{28, 90}
		}
		task := &task{job: r.job}
		if got := task.word(cluster.Heartbeat); !reflect.DeepEqual(got, want) {
			t.Errorf("%s, worker:%d: %+v, want %+v", c.mode, c.rank, got, want)
		}
		want.Last = c.speaks
		if got := task.lastWord(cluster.Heartbeat); !reflect.DeepEqual(got, want) {
			t.Errorf("%s, worker:%d, at last: %+v, want %+v", c.mode, c.rank, got, want)
		}
	}
}

// A task that does not train yet says nothing of steps, nor one of more groups than
// a message can hold what each of them has.
func TestWordsWithoutSteps(t *testing.T) {
	starting := &task{job: &Job{contract: cluster.Contract{Task: cluster.Chief}}}
	if got, want := starting.lastWord(cluster.Failed), (cluster.ControlMessage{Kind: cluster.Failed}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for n, told := range map[int]bool{0: false, 1: true, cluster.MaxGroups: true, cluster.MaxGroups + 1: false} {
		if got := listed(make([]uint64, n)); (got != nil) != told || told && len(got) != n {
			t.Errorf("of %d groups %d are listed", n, len(got))
		}
	}
}

// lastWord is what a process said last of its steps, when it made no more.
func (p *testProcess) lastWord(t *testing.T) cluster.ControlMessage {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var last cluster.ControlMessage
	for _, m := range p.heard {
		if m.Groups > 0 || m.Made != nil {
			last = m
		}
	}
	return last
}

// untilMade waits for a worker's word that it has made a step.
func (p *testProcess) untilMade(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); p.lastWord(t).Step == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s has not made a step; stderr: %s", p.task, p.stderr.String())
		}
	}
}

// However a task ends, it says before how far it is; a server as far as the workers
// have come whose word it is, or a step that was under way further.
func TestALastWordIsSaid(t *testing.T) {
	endings := map[string]func(t *testing.T, all map[string]*testProcess){
		"told to regroup": regrouped,
		"told to stop": func(t *testing.T, all map[string]*testProcess) {
			for _, p := range all {
				p.control.Send(cluster.ControlMessage{Kind: cluster.Stop}) // it may have failed already, for want of another
			}
			for _, p := range all {
				p.end(t)
			}
		},
		"without the chief": func(t *testing.T, all map[string]*testProcess) {
			if err := all["worker:0"].cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for name, p := range all {
				if name != "worker:0" {
					p.until(t, cluster.Failed)
				}
			}
			delete(all, "worker:0")
		},
	}
	for _, mode := range []string{"async", "ssp:3", "group:2", "backup:1"} {
		for name, end := range endings {
			t.Run(mode+" "+name, func(t *testing.T) {
				t.Parallel()
				sync, err := owner.ParseSync(mode)
				if err != nil {
					t.Fatal(err)
				}
				groups := (&owner.Declaration{Sync: sync, Workers: make([]owner.Range, 3)}).Groups()
				all := launch(t, "forever", 3, 2, "--sync="+mode)
				all["worker:0"].untilStep(t, 20)
				for rank := range 3 { // nobody waits for the others, which may not train yet
					all[cluster.Task{Role: cluster.Worker, Index: rank}.String()].untilMade(t)
				}
				end(t, all)
				one, other := all["ps:0"].lastWord(t), all["ps:1"].lastWord(t)
				if !one.Last || !other.Last || len(one.Made) != len(groups) || len(other.Made) != len(groups) {
					t.Fatalf("the servers said %+v and %+v", one, other)
				}
				for rank := range 3 {
					p := all[cluster.Task{Role: cluster.Worker, Index: rank}.String()]
					if p == nil {
						continue
					}
					m := p.lastWord(t)
					g := slices.IndexFunc(groups, func(g owner.Range) bool { return rank < g.Hi })
					speaks := rank == groups[g].Lo && mode != "backup:1"
					if m.Last != speaks || m.Group != g || m.Groups != len(groups) || m.Made != nil || m.Step == 0 {
						t.Errorf("%s said %+v", p.task, m)
					}
					for _, made := range []int64{one.Made[g], other.Made[g]} {
						if mode == "backup:1" && made >= m.Step {
							continue // it may have been late
						}
						if made < m.Step || made > m.Step+1 {
							t.Errorf("%s is at step %d, the servers say %d and %d", p.task, m.Step, one.Made[g], other.Made[g])
						}
					}
				}
			})
		}
	}
}

// A worker that has nothing more to do has said how far it is too.
func TestTheDoneHaveSaidHowFar(t *testing.T) {
	all := launch(t, "12", 2, 1, "--sync=async")
	for name, p := range all {
		if code, said := p.end(t); code != 0 || said[len(said)-1].Kind != cluster.Finished {
			t.Fatalf("%s: exit code %d, said %+v; stderr: %s", name, code, said, p.stderr.String())
		}
	}
	for rank, name := range []string{"worker:0", "worker:1"} {
		want := cluster.ControlMessage{Kind: cluster.Finished, Step: 12, Group: rank, Groups: 2, Last: true}
		if got := all[name].lastWord(t); !reflect.DeepEqual(got, want) {
			t.Errorf("%s said %+v, want %+v", name, got, want)
		}
	}
	want := cluster.ControlMessage{Kind: cluster.Finished, Made: []int64{12, 12}, Last: true}
	if got := all["ps:0"].lastWord(t); !reflect.DeepEqual(got, want) {
		t.Errorf("ps:0 said %+v, want %+v", got, want)
	}
}
