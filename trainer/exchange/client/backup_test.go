package client

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// unclipped returns the declaration mixed without clipping, because backup
// mode does not allow clipping.
func unclipped(leaves, workers int) layout.Declaration {
	d := mixed(leaves, workers)
	d.Clip = 0
	return d
}

// A step uses the gradients of the first N workers; the reference adds only
// theirs. The other workers are late, receive the current values, and are
// counted.
func TestBackupModeUsesFastestWorkers(t *testing.T) {
	for _, servers := range []int{1, 3} {
		j := newJob(t, in("backup:2", unclipped(8, 5)), policy.Servers, servers)
		members := j.connect(t)
		n := newReference(&j.d)
		random := rand.New(rand.NewPCG(5, 6))
		for s := range uint64(12) {
			order := random.Perm(5)
			var first []*member
			for _, rank := range order[:3] {
				if members[rank].Step() != s { // the worker was late in an earlier step and only now learns that
					end, err := members[rank].take(context.Background(), members[rank].Step(), 0.05, everyLeaf)
					if err != nil || !end.Late || end.Dropped != members[rank].virtual.Len() || members[rank].Step() != s {
						t.Fatalf("worker:%d: %+v, %v, now at step %d, want it late at %d", rank, end, err, members[rank].Step(), s)
					}
					n.compare(t, members[rank].values, worker(rank).String())
				}
				first = append(first, members[rank])
			}
			ends, errs := step(first, s, 0.05)
			must(t, errs)
			n.step(0, 8, s, 0.05, func(leaf int) bool {
				return slices.ContainsFunc(first, func(m *member) bool { return m.virtual.Lo <= leaf && leaf < m.virtual.Hi })
			})
			for i, m := range first {
				n.compare(t, m.values, worker(m.rank).String())
				if ends[i].Late || !n.reports(ends[i]) || ends[i].Step != s {
					t.Fatalf("worker:%d: %+v, want loss %v", m.rank, ends[i], n.loss)
				}
			}
		}
		for i, v := range j.d.Variables {
			if v.Sparse == nil {
				continue
			}
			got := make([]byte, v.NumElements()*4)
			if err := members[0].Rows.Whole(context.Background(), i, got); err != nil || string(got) != string(n.table(i)) {
				t.Errorf("%s differs from the reference: %v", v.Name, err)
			}
		}
		leave(t, j, members)
	}
}

// In every order of arrival, a step uses the gradients of exactly N workers,
// computed on the values before that step.
func TestConcurrentStepsInBackupMode(t *testing.T) {
	const steps = 60
	j := newJob(t, in("backup:1", unclipped(4, 4)), policy.Servers, 3)
	members := j.connect(t)
	var mu sync.Mutex
	made := map[uint64][]int{}
	begun := map[uint64]string{} // by step: values on which the used gradients were computed
	var running sync.WaitGroup
	for _, m := range members {
		running.Go(func() {
			for m.Step() < steps {
				s, on := m.Step(), ""
				for _, v := range m.values {
					on += string(v)
				}
				end, err := m.take(context.Background(), s, 0.01, everyLeaf)
				if err != nil || end.Over {
					t.Errorf("worker:%d: %+v, %v", m.rank, end, err)
					return
				}
				if end.Late {
					continue
				}
				mu.Lock()
				made[s] = append(made[s], m.virtual.Lo)
				if begun[s] == "" {
					begun[s] = on
				} else if begun[s] != on {
					t.Errorf("step %d was computed on different values", s)
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	n := newReference(&j.d)
	for s := range uint64(steps) {
		if len(made[s]) != 3 {
			t.Fatalf("step %d was made by the leaves %v", s, made[s])
		}
		n.step(0, 4, s, 0.01, func(leaf int) bool { return slices.Contains(made[s], leaf) })
	}
	for _, m := range members {
		n.compare(t, m.values, worker(m.rank).String())
	}
	leave(t, j, members)
}

// After too many workers have left to complete a step, the remaining workers
// receive Over, whether they already wait or ask later.
func TestBackupModeEndsWhenTooFewWorkersRemain(t *testing.T) {
	j := newJob(t, in("backup:1", unclipped(4, 4)), policy.Servers, 2)
	members := j.connect(t)
	_, errs := step(members[:3], 0, 0.05)
	must(t, errs)
	n := newReference(&j.d)
	n.step(0, 3, 0, 0.05, everyLeaf)
	waiting := make(chan Outcome, 1)
	go func() {
		end, err := members[0].take(context.Background(), 1, 0.05, everyLeaf)
		if err != nil {
			t.Error(err)
		}
		waiting <- end
	}()
	eventually(t, "worker:0 was accepted", func() bool {
		return serverOf(t, j, 0).Shards().Selection().Counted(0) == 2
	})
	closed := make(chan error, 2)
	for _, m := range members[1:3] {
		go func() { closed <- m.Close() }()
	}
	for range 2 {
		if err := within(t, closed); err != nil {
			t.Error(err)
		}
	}
	if end := within(t, waiting); !end.Over || end.Step != 1 || end.Dropped != 1 {
		t.Errorf("waiting: %+v", end)
	}
	end, err := members[3].take(context.Background(), 0, 0.05, everyLeaf)
	if err != nil || !end.Over {
		t.Errorf("late: %+v, %v", end, err)
	}
	members[0].saveCut(t, Passing) // its gradients have arrived, and no step will apply them
	checkSaved(t, &j.d, j.saved(t, j.d.Pieces, 1), n.kept())
	leave(t, j, members)
}
