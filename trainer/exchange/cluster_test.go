package exchange

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/timeline"
)

const patience = 30 * time.Second // for what ought to happen at once

func server0(index int) cluster.Task { return cluster.Task{Role: cluster.PS, Index: index} }

// Ranges cuts n into so many near-equal ranges.
func ranges(n, count int) (all []layout.Range) {
	for i := range count {
		all = append(all, layout.Range{Lo: n * i / count, Hi: n * (i + 1) / count})
	}
	return all
}

// Example is a declaration without a placement.
func example(leaves, workers int) layout.Declaration {
	return layout.Declaration{
		VirtualWorkers: leaves, Workers: ranges(leaves, workers),
		Variables: []layout.Variable{
			{Name: "w", Dtype: layout.Float32, Shape: []int{3, 5}},
			{Name: "b", Dtype: layout.Float64, Shape: []int{4}},
			{Name: "big", Dtype: layout.Float32, Shape: []int{5, 1024}},
			{Name: "s", Dtype: layout.Float32},
		},
		Optimizer:     optimizer.Settings{Rule: optimizer.Momentum, Momentum: 0.9},
		Batch:         12,
		StartMillis:   20000,
		SilenceMillis: 20000,
	}
}

// job is a training in this process: every task has its own door.
type testJob struct {
	key     cluster.Key
	d       layout.Declaration
	cluster cluster.Spec
	servers int
	doors   map[cluster.Task]*peers.Listener
	stop    []context.CancelFunc // by server
	ended   []chan error         // by server
	served  []*server            // by server
	logged  sync.Map
	traces  []*timeline.Recorder // by worker, may be empty
	views   []cluster.Spec       // by worker: addresses as it sees them, empty: cluster
	shelf   shelf                // what all tasks save to and restore from
	zeros   bool                 // are the chief's first values
}

func newJob(t testing.TB, d layout.Declaration, a policy.Architecture, servers int) *testJob {
	t.Helper()
	if err := d.Place(a, servers, 0); err != nil {
		t.Fatal(err)
	}
	j := &testJob{key: cluster.PeerKey([]byte("secret"), 0), d: d, servers: servers, doors: map[cluster.Task]*peers.Listener{}}
	for rank := range d.Workers {
		j.door(t, worker(rank))
	}
	for i := range servers {
		j.door(t, server0(i))
	}
	for i := range servers {
		j.serve(t, i)
	}
	return j
}

func (j *testJob) door(t testing.TB, task cluster.Task) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j.cluster.Set(task, ln.Addr().String())
	j.doors[task] = peers.Listen(ln, j.peers(task))
	t.Cleanup(func() { within(t, closed(j.doors[task])) })
}

func closed(d *peers.Listener) <-chan error {
	done := make(chan error, 1)
	go func() { done <- d.Close() }()
	return done
}

func (j *testJob) peers(task cluster.Task) peers.Config {
	return peers.Config{Self: task, Key: j.key, Workers: len(j.d.Workers), Servers: j.servers,
		Logf: func(_ slog.Level, format string, args ...any) { j.logged.Store(fmt.Sprintf(format, args...), true) }}
}

func (j *testJob) serve(t testing.TB, i int) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	j.stop, j.ended = append(j.stop, cancel), append(j.ended, ended)
	s := newServer(j.peers(server0(i)))
	s.cluster, s.checkpoints = j.cluster, &j.shelf
	j.served = append(j.served, s)
	go func() {
		ended <- s.serve(ctx, j.doors[server0(i)])
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		within(t, ended)
	})
}

func (j *testJob) config(rank int, values [][]byte) ClientConfig {
	c := ClientConfig{Peers: j.peers(worker(rank)), Door: j.doors[worker(rank)], Cluster: j.cluster,
		Declaration: j.d, Values: values, Checkpoints: &j.shelf}
	if rank < len(j.traces) {
		c.Trace = j.traces[rank]
	}
	if rank < len(j.views) {
		c.Cluster = j.views[rank]
	}
	return c
}

// serverOf returns a server of a job whose workers are connected.
func serverOf(t *testing.T, j *testJob, i int) *server {
	t.Helper()
	s := j.served[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opened {
		t.Fatalf("ps:%d is not open", i)
	}
	return s
}

// member is a worker of a test.
type member struct {
	*Client
	values [][]byte
	rank   int
}

// connect connects every worker; the chief's values are those of seed 1.
func (j *testJob) connect(t testing.TB) []*member {
	t.Helper()
	members := make([]*member, len(j.d.Workers))
	errs := make([]error, len(members))
	var connecting sync.WaitGroup
	for rank := range members {
		values := firstValues(&j.d, rank+1)
		for _, memory := range values {
			if j.zeros {
				clear(memory)
			}
		}
		connecting.Go(func() {
			c, err := Connect(context.Background(), j.config(rank, values))
			members[rank], errs[rank] = &member{c, values, rank}, err
		})
	}
	connecting.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("worker:%d: %v", rank, err)
		}
		t.Cleanup(func() { members[rank].Abort(errors.New("the test is over")) })
	}
	return members
}

// take computes and finishes a step; leaves that present refuses are absent.
func (m *member) take(ctx context.Context, s uint64, rate float64, present func(int) bool) (Outcome, error) {
	var absent []int
	for leaf := m.leaves.Lo; leaf < m.leaves.Hi; leaf++ {
		if !present(leaf) {
			absent = append(absent, leaf)
		}
	}
	if err := m.Begin(rate, absent...); err != nil {
		return Outcome{}, err
	}
	var lanes sync.WaitGroup
	sums := make([][]float64, m.leaves.Len())
	for leaf := m.leaves.Lo; leaf < m.leaves.Hi; leaf++ {
		if !present(leaf) {
			continue
		}
		lanes.Go(func() { m.compute(ctx, leaf, s) })
		for i := range 1 + m.d.Metrics {
			sums[leaf-m.leaves.Lo] = append(sums[leaf-m.leaves.Lo], lossOf(i, leaf, s))
		}
	}
	lanes.Wait()
	return m.Finish(ctx, sums)
}

func (m *member) compute(ctx context.Context, leaf int, s uint64) {
	for i := len(m.d.Variables) - 1; i >= 0; i-- {
		if m.d.Variables[i].Sparse != nil {
			index, values := rowsOf(m.d, i, leaf, s)
			m.ContributeRows(leaf, i, index, values)
			continue
		}
		gradient(m.d, m.Gradient(leaf, i), i, leaf, s)
		m.Contribute(leaf, i)
	}
}

// step makes every worker take step number s.
func step(members []*member, s uint64, rate float64) ([]Outcome, []error) {
	return stepPresent(members, s, rate, everyLeaf)
}

func stepPresent(members []*member, s uint64, rate float64, present func(int) bool) ([]Outcome, []error) {
	errs, ends := make([]error, len(members)), make([]Outcome, len(members))
	var stepping sync.WaitGroup
	for i, m := range members {
		stepping.Go(func() { ends[i], errs[i] = m.take(context.Background(), s, rate, present) })
	}
	stepping.Wait()
	return ends, errs
}

// must wants no errors.
func must(t testing.TB, errs []error) {
	t.Helper()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("worker:%d: %v", i, err)
		}
	}
}

// leave says all goodbyes and wants everybody to end well.
func leave(t testing.TB, j *testJob, members []*member) {
	t.Helper()
	var closing sync.WaitGroup
	for rank, m := range members {
		closing.Go(func() {
			if err := m.Close(); err != nil {
				t.Errorf("worker:%d: close: %v", rank, err)
			}
		})
	}
	closing.Wait()
	for i := range j.ended {
		if err := within(t, j.ended[i]); err != nil {
			t.Errorf("ps:%d: %v", i, err)
		}
	}
}

// within returns what comes from ch, in bounded time.
func within[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case got := <-ch:
		return got
	case <-time.After(patience):
		t.Fatal("nothing happened")
		panic("unreachable")
	}
}

// checkSteps trains and compares with the twin, bit by bit, after every step.
func checkSteps(t *testing.T, j *testJob, steps uint64) {
	t.Helper()
	members := j.connect(t)
	n := newTwin(&j.d)
	for _, m := range members {
		n.compare(t, m.values, worker(m.rank).String())
	}
	for s := range steps {
		ends, errs := step(members, s, 0.05)
		must(t, errs)
		n.step(0, j.d.VirtualWorkers, s, 0.05, everyLeaf)
		for rank, m := range members {
			n.compare(t, m.values, worker(rank).String())
			if !n.reports(ends[rank]) || ends[rank].Step != s || ends[rank].VirtualWorkers != j.d.VirtualWorkers {
				t.Fatalf("worker:%d: outcome %+v, want loss %v of step %d", rank, ends[rank], n.loss, s)
			}
			if j.d.Norms() && ends[rank].Norm != n.norm {
				t.Fatalf("worker:%d: norm %v, want %v", rank, ends[rank].Norm, n.norm)
			}
		}
	}
	for i, v := range j.d.Variables {
		if v.Sparse == nil {
			continue
		}
		got := make([]byte, v.NumElements()*v.Dtype.Size())
		if err := members[len(members)-1].Whole(context.Background(), i, got); err != nil {
			t.Fatal(err)
		}
		if string(got) != string(n.table(i)) {
			t.Fatalf("%s differs from the twin", v.Name)
		}
	}
	leave(t, j, members)
}
