package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/netcut"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/policy"
)

// hosted returns a job with local aggregation on two hosts of several workers
// and one host of a single worker.
func hosted(t *testing.T, a policy.Architecture, change func(d *layout.Declaration)) *testJob {
	d := mixed(6, 6)
	d.Hosts = []layout.Range{{Lo: 0, Hi: 3}, {Lo: 3, Hi: 5}, {Lo: 5, Hi: 6}}
	if change != nil {
		change(&d)
	}
	return newJob(t, d, a, 2)
}

// If a random worker or server dies at a random moment of a random job, all
// other tasks blame it.
func TestRandomLossWithLocalAggregationIsReported(t *testing.T) {
	const first, jobs = 1, 24
	for seed := uint64(first); seed < first+jobs; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 5))
			j := randomJob(t, random)
			var tasks []cluster.Task // all workers, and the servers that hold pieces
			for rank := range j.d.Workers {
				tasks = append(tasks, worker(rank))
			}
			for _, holder := range j.d.Holders {
				if isServer(holder) {
					tasks = append(tasks, holder)
				}
			}
			dead := tasks[random.IntN(len(tasks))]
			t.Logf("%s dies", dead)
			members := j.connect(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			timer := time.AfterFunc(time.Duration(random.IntN(20000))*time.Microsecond, func() {
				if isServer(dead) {
					j.served[dead.Index].End(nil) // without an error, so that the server closes its connections without a report
					return
				}
				die(members[dead.Index])
				cancel()
			})
			defer timer.Stop()
			for rank, err := range runOut(ctx, members, dead) {
				if worker(rank) != dead {
					blames(t, err, dead, "")
				}
			}
			for _, task := range tasks[len(members):] {
				if err := within(t, j.ended[task.Index]); task != dead {
					blames(t, err, dead, "")
				}
			}
		})
	}
}

// If a worker of a host never connects, the error names it, even if it is the
// first worker of the host.
func TestMissingWorkerOfHostIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid} {
		for _, missing := range []int{0, 1, 3, 4} {
			t.Run(fmt.Sprint(a, missing), func(t *testing.T) {
				t.Parallel()
				j := hosted(t, a, func(d *layout.Declaration) { d.StartMillis = 4000 })
				errs := make(chan error, 6)
				for rank := range 6 {
					if rank == missing {
						continue
					}
					go func() {
						_, err := Connect(context.Background(), j.config(rank, firstValues(&j.d, 1)))
						errs <- err
					}()
				}
				for range 5 {
					blames(t, within(t, errs), worker(missing), "not ready within 4s")
				}
			})
		}
	}
}

// If a worker of a host gives up or leaves before the others, the errors name
// it and its reason.
func TestWorkerOfHostThatLeavesEarlyIsReported(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid} {
		for _, who := range []int{0, 1, 3, 4} {
			for what, out := range map[string]func(m *member){
				"all workers must take the same number of steps": func(m *member) { m.Close() },
				"the disk is full": func(m *member) { m.Abort(errors.New("the disk is full")) },
			} {
				j := hosted(t, a, func(d *layout.Declaration) { d.StartMillis = patience.Limit.Milliseconds() })
				members := j.connect(t)
				_, errs := step(members, 0, 0.1)
				must(t, errs)
				left := make(chan bool, 1)
				go func() { out(members[who]); left <- true }()
				_, errs = step(slices.Delete(slices.Clone(members), who, who+1), 1, 0.1)
				for _, err := range errs {
					blames(t, err, worker(who), what)
				}
				within(t, left)
			}
		}
	}
}

// runOut makes every worker take steps until it gets an error. The worker dead
// takes steps until ctx ends.
func runOut(ctx context.Context, members []*member, dead cluster.Task) []error {
	errs := make([]error, len(members))
	var running sync.WaitGroup
	for rank, m := range members {
		running.Go(func() {
			own := context.Background()
			if worker(rank) == dead {
				own = ctx
			}
			for s := uint64(0); errs[rank] == nil; s++ {
				_, errs[rank] = m.take(own, s, 0.1, everyLeaf)
			}
		})
	}
	running.Wait()
	return errs
}

// part puts a proxy into every connection between the tasks of a side and all
// other tasks. shut stops the proxies from forwarding.
func part(t *testing.T, j *testJob, side func(cluster.Task) bool) (shut func()) {
	var all []*netcut.Proxy
	through := func(from, to cluster.Task) string {
		addr := j.cluster.Addr(to)
		if side(from) == side(to) {
			return addr
		}
		v := netcut.New(t, addr)
		all = append(all, v)
		return v.Addr()
	}
	for rank := range j.d.Workers {
		view := cluster.Spec{PS: slices.Clone(j.cluster.PS), Worker: slices.Clone(j.cluster.Worker)}
		for i := range view.PS {
			view.PS[i] = through(worker(rank), server0(i))
		}
		for i := range view.Worker {
			view.Worker[i] = through(worker(rank), worker(i))
		}
		j.views = append(j.views, view)
	}
	return func() {
		for _, v := range all {
			v.Shut()
		}
	}
}

// If a process hangs or a host loses its network, both sides end the training
// after the declared silence limit, and each blames the other.
func TestSilentHostIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	for name, c := range map[string]struct {
		a    policy.Architecture
		side func(cluster.Task) bool
	}{
		"first of a host":                  {policy.Hybrid, func(task cluster.Task) bool { return task == worker(0) }},
		"first of another":                 {policy.Servers, func(task cluster.Task) bool { return task == worker(3) }},
		"worker of the same host":          {policy.Hybrid, func(task cluster.Task) bool { return task == worker(1) }},
		"worker of the same host, servers": {policy.Servers, func(task cluster.Task) bool { return task == worker(1) }},
		"host":                             {policy.Hybrid, func(task cluster.Task) bool { return task == worker(3) || task == worker(4) }},
		"server":                           {policy.Hybrid, func(task cluster.Task) bool { return task == server0(1) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := hosted(t, c.a, func(d *layout.Declaration) { d.SilenceMillis = 5000 })
			shut := part(t, j, c.side)
			members := j.connect(t)
			_, errs := step(members, 0, 0.1)
			must(t, errs)
			shut()
			began := time.Now()
			_, errs = step(members, 1, 0.1)
			for i := range j.ended {
				errs = append(errs, within(t, j.ended[i]))
			}
			if took := time.Since(began); took > patience.Limit/2 {
				t.Errorf("took %v", took)
			}
			for i, err := range errs {
				task := worker(i)
				if i >= len(members) {
					task = server0(i - len(members))
				}
				var peer *peers.PeerError
				if !errors.As(err, &peer) || c.side(peer.Task) == c.side(task) {
					t.Errorf("%s: %v, want it to blame the other side", task, err)
				}
			}
		})
	}
}
