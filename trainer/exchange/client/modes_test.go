package client

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

func in(mode string, d layout.Declaration) layout.Declaration {
	s, err := policy.ParseSync(mode)
	if err != nil {
		panic(err)
	}
	d.Sync = s
	return d
}

// Groups take steps one after the other. The values equal those of the
// reference that applies the steps in the same order. A group that has taken
// no step keeps its old values.
func TestGroupsInTurnMatchReference(t *testing.T) {
	for _, c := range []struct {
		mode            string
		leaves, workers int
		groups          []layout.Range // of workers
		clips           []float64
	}{
		{"async", 6, 3, ranges(3, 3), []float64{0, 50}}, {"async", 4, 1, ranges(1, 1), []float64{0}}, {"ssp:100", 5, 2, ranges(2, 2), []float64{50}},
		{"group:2", 8, 5, ranges(5, 2), []float64{0, 50}}, {"group:3", 7, 3, ranges(3, 3), []float64{0}}, {"group:1", 6, 3, ranges(3, 1), []float64{50}},
	} {
		for _, clip := range c.clips {
			t.Run(fmt.Sprint(c.mode, "/", c.workers, "/", clip), func(t *testing.T) {
				d := in(c.mode, mixed(c.leaves, c.workers))
				d.Clip = clip
				d.Norm = c.leaves == 6
				j := newJob(t, d, policy.Servers, 2)
				members := j.connect(t)
				n := newReference(&j.d)
				random := rand.New(rand.NewPCG(1, 2))
				steps := make([]uint64, len(c.groups))
				for range 8 {
					g := random.IntN(len(c.groups))
					group := members[c.groups[g].Lo:c.groups[g].Hi]
					ends, errs := step(group, steps[g], 0.05)
					must(t, errs)
					n.step(group[0].virtual.Lo, group[len(group)-1].virtual.Hi, steps[g], 0.05, everyLeaf)
					for i, m := range group {
						n.compare(t, m.values, worker(m.rank).String())
						if !n.reports(ends[i]) || d.Norms() && ends[i].Norm != n.norm {
							t.Fatalf("worker:%d: %+v, want loss %v and norm %v", m.rank, ends[i], n.loss, n.norm)
						}
					}
					steps[g]++
				}
				table := make([]byte, len(n.table(5)))
				if err := members[0].Rows.Whole(context.Background(), 5, table); err != nil || string(table) != string(n.table(5)) {
					t.Errorf("the table differs from the reference: %v", err)
				}
				leave(t, j, members)
			})
		}
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience.Limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience.Limit, what)
		}
	}
}

// bounded returns a training in mode ssp:k. waits reports whether a worker
// must wait for slower workers.
func bounded(t *testing.T, k uint64) (j *testJob, members []*member, waits func(rank int) bool) {
	d := in(fmt.Sprintf("ssp:%d", k), example(3, 3))
	j = newJob(t, d, policy.Servers, 1)
	members = j.connect(t)
	return j, members, func(rank int) bool { return kept(t, j, rank, k+1) }
}

// kept reports whether every server prevents a worker from beginning another
// step after the given number of finished steps.
func kept(t *testing.T, j *testJob, rank int, steps uint64) bool {
	for i := range j.served {
		s := serverOf(t, j, i)
		if w := s.Workers()[rank]; w.Steps != steps || s.Shards().Steps()[rank] != steps || w.Ready {
			return false
		}
	}
	return true
}

// A worker that is K steps ahead of the slowest worker blocks at the end of
// its next step. It continues when the slowest worker takes a step, even one
// without data.
func TestWorkerBlocksAtStalenessBound(t *testing.T) {
	const k = 2
	j, members, waits := bounded(t, k)
	n := newReference(&j.d)
	ctx := context.Background()
	for s := range uint64(k) {
		if _, err := members[0].take(ctx, s, 0.05, everyLeaf); err != nil {
			t.Fatal(err)
		}
		n.step(0, 1, s, 0.05, everyLeaf)
	}
	done := make(chan error, 1)
	go func() {
		_, err := members[0].take(ctx, k, 0.05, everyLeaf)
		done <- err
	}()
	n.step(0, 1, k, 0.05, everyLeaf)
	eventually(t, "worker:0 waits", func() bool { return waits(0) })
	if _, err := members[1].take(ctx, 0, 0.05, everyLeaf); err != nil { // worker:2 has taken no step yet
		t.Fatal(err)
	}
	n.step(1, 2, 0, 0.05, everyLeaf)
	select {
	case err := <-done:
		t.Fatalf("worker:0 went on: %v", err)
	default:
	}
	if !waits(0) {
		t.Fatal("worker:0 was answered while worker:2 had not moved")
	}
	end, err := members[2].take(ctx, 0, 0.05, func(int) bool { return false }) // nothing but its clock
	if err != nil || end.VirtualWorkers != 0 {
		t.Fatal(end, err)
	}
	if err := within(t, done); err != nil {
		t.Fatal(err)
	}
	n.compare(t, members[0].values, "worker:0") // worker:0 got the values at the moment when it could continue
	leave(t, j, members)
}

// Other workers do not wait for a worker that has left.
func TestWorkerContinuesWhenOthersLeave(t *testing.T) {
	j, members, waits := bounded(t, 0)
	done := make(chan error, 1)
	go func() {
		for s := range uint64(5) {
			if _, err := members[0].take(context.Background(), s, 0.05, everyLeaf); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	eventually(t, "worker:0 waits", func() bool { return waits(0) })
	closed := make(chan error, 2)
	for _, m := range members[1:] {
		go func() { closed <- m.Close() }()
	}
	for range 2 {
		if err := within(t, closed); err != nil {
			t.Error(err)
		}
	}
	if err := within(t, done); err != nil {
		t.Fatal(err)
	}
	leave(t, j, members)
}

// For every goroutine schedule, no worker begins a step more than K steps
// ahead of the slowest worker.
func TestStalenessBoundIsNeverExceeded(t *testing.T) {
	for _, k := range []uint64{0, 1, 3} {
		d := in(fmt.Sprintf("ssp:%d", k), example(4, 4))
		j := newJob(t, d, policy.Servers, 2)
		members := j.connect(t)
		given := make([]atomic.Uint64, 4)
		var running sync.WaitGroup
		for _, m := range members {
			running.Go(func() {
				for s := range uint64(15) {
					for rank := range given {
						if ahead := given[rank].Load() + k; s > ahead {
							t.Errorf("K=%d: worker:%d begins step %d, worker:%d gave %d", k, m.rank, s, rank, ahead-k)
						}
					}
					given[m.rank].Store(s + 1) // from here on the servers may count this step as finished
					if _, err := m.take(context.Background(), s, 0.01, everyLeaf); err != nil {
						t.Errorf("worker:%d: %v", m.rank, err)
						return
					}
				}
			})
		}
		running.Wait()
		leave(t, j, members)
	}
}

// In mode async, every gradient is applied exactly once, in any order.
func TestAsynchronousModeUsesEveryGradient(t *testing.T) {
	for _, mode := range []string{"async", "ssp:1", "group:2"} {
		d := in(mode, example(4, 4))
		d.Optimizer, d.Sum = optimizer.Settings{Rule: optimizer.SGD}, true
		j := newJob(t, d, policy.Servers, 2)
		members := j.connect(t)
		var running sync.WaitGroup
		for _, m := range members {
			running.Go(func() {
				for s := range uint64(20) {
					if _, err := m.take(context.Background(), s, 1e-3, everyLeaf); err != nil {
						t.Errorf("%s: worker:%d: %v", mode, m.rank, err)
					}
				}
			})
		}
		running.Wait()
		want := firstValues(&j.d, 1)
		for s := range uint64(20) {
			for leaf := range 4 {
				g := make([]float64, 4)
				gradient(&j.d, wire.Bytes(g), 1, leaf, s)
				for i := range g {
					wire.Floats[float64](want[1])[i] -= 1e-3 * g[i]
				}
			}
		}
		got := make([]float64, 4)
		for i := range j.servers {
			for _, s := range serverOf(t, j, i).Shards().All() {
				if s.Variable == 1 {
					copy(got, wire.Floats[float64](s.Value(-1)))
				}
			}
		}
		for i, x := range wire.Floats[float64](want[1]) {
			if math.Abs(x-got[i]) > 1e-9 {
				t.Errorf("%s: element %d is %v, want %v", mode, i, got[i], x)
			}
		}
		leave(t, j, members)
	}
}

// If a worker is lost and its group cannot continue, workers of all other
// groups get the error too.
func TestLostWorkerOfGroupIsReported(t *testing.T) {
	j := newJob(t, in("group:3", example(3, 3)), policy.Servers, 2)
	members := j.connect(t)
	die(members[1])
	for _, rank := range []int{0, 2} {
		var err error
		for s := uint64(0); err == nil; s++ {
			_, err = members[rank].take(context.Background(), s, 0.1, everyLeaf)
		}
		blames(t, err, worker(1), "connection lost")
	}
}
