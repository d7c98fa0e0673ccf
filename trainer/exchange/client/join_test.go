package client

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/policy"
)

// Virtual workers whose data has ended are absent and do not count as zero.
// For any number of workers, the result equals that of the reference without
// them, and all workers leave after the same step.
func TestAbsentVirtualWorkersAreSkipped(t *testing.T) {
	ends := func(leaf int) uint64 { return uint64(2 + leaf*5%4) } // steps with data
	for _, workers := range []int{1, 2, 3, 4, 6} {
		for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce, policy.Hybrid} {
			t.Run(fmt.Sprint(workers, a), func(t *testing.T) {
				j := newJob(t, mixed(6, workers), a, 2)
				members := j.connect(t)
				n := newReference(&j.d)
				var s uint64
				for ; s < 5; s++ {
					present := func(leaf int) bool { return s < ends(leaf) }
					outcomes, errs := stepPresent(members, s, 0.05, present)
					must(t, errs)
					n.step(0, 6, s, 0.05, present)
					for i, m := range members {
						n.compare(t, m.values, worker(m.rank).String())
						if !n.reports(outcomes[i]) || outcomes[i].Norm != n.norm {
							t.Fatalf("worker:%d: %+v, want loss %v, norm %v", i, outcomes[i], n.loss, n.norm)
						}
					}
				}
				outcomes, errs := stepPresent(members, s, 0.05, func(int) bool { return false })
				must(t, errs)
				for i, m := range members {
					n.compare(t, m.values, worker(m.rank).String()) // nothing has changed
					if outcomes[i].VirtualWorkers != 0 {
						t.Errorf("worker:%d: %+v, want no leaves", i, outcomes[i])
					}
				}
				leave(t, j, members)
			})
		}
	}
}

func TestJoinReturnsAfterAllWorkersHaveJoined(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		j := newJob(t, mixed(4, 4), a, 1)
		members := j.connect(t)
		n := newReference(&j.d)
		lasts := []uint64{3, 1, 5, 0}
		joinAll(t, members, lasts)
		for s := range uint64(5) {
			n.step(0, 4, s, 0.05, func(leaf int) bool { return s < lasts[leaf] })
		}
		for rank, m := range members {
			n.compare(t, m.values, worker(rank).String())
			if m.Step() != 6 {
				t.Errorf("worker:%d took %d steps, want 5 and the one without anybody", rank, m.Step())
			}
		}
		leave(t, j, members)
	}
}

// joinAll makes each worker take its own number of steps with data, and then
// call Join.
func joinAll(t *testing.T, members []*member, steps []uint64) {
	var running sync.WaitGroup
	for rank, m := range members {
		running.Go(func() {
			for s := range steps[rank] {
				if _, err := m.take(context.Background(), s, 0.05, everyLeaf); err != nil {
					t.Errorf("worker:%d: %v", rank, err)
					return
				}
			}
			if err := m.Join(context.Background()); err != nil {
				t.Errorf("worker:%d: join: %v", rank, err)
			}
		})
	}
	running.Wait()
}

func TestJoinReturnsIfNoWorkerWaits(t *testing.T) {
	for _, mode := range []string{"async", "ssp:1", "backup:1"} {
		j := newJob(t, in(mode, unclipped(2, 2)), policy.Servers, 1)
		members := j.connect(t)
		if err := members[1].Join(context.Background()); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		leave(t, j, members)
	}
}
