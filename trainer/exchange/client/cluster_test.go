package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/server"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/timeline"
	"github.com/plx-run/plx/trainer/wire"
)

func worker(rank int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: rank} }

func server0(index int) cluster.Task { return cluster.Task{Role: cluster.PS, Index: index} }

// ranges divides [0, n) into count ranges of nearly equal length.
func ranges(n, count int) (all []layout.Range) {
	for i := range count {
		all = append(all, layout.Range{Lo: n * i / count, Hi: n * (i + 1) / count})
	}
	return all
}

// example returns a declaration whose variables are not placed on holders yet.
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
		StartMillis:   patience.Limit.Milliseconds(),
		SilenceMillis: patience.Limit.Milliseconds(),
	}
}

// testJob is a training whose tasks all run in this process. Every task has
// its own listener.
type testJob struct {
	key       cluster.Key
	d         layout.Declaration
	cluster   cluster.Spec
	servers   int
	listeners map[cluster.Task]*peers.Listener
	stop      []context.CancelFunc // by server
	ended     []chan error         // by server
	served    []*server.Server     // by server
	routes    [][]string           // by server: the addresses of all servers that this server uses
	free      sync.Map             // by task: *freeMemory
	bare      []cluster.Task       // workers without Checkpoints
	conns     sync.Map             // accepted connections by remote address
	logged    sync.Map
	traces    []*timeline.Recorder // by worker; may be empty
	views     []cluster.Spec       // by worker: the addresses that this worker uses; empty means cluster
	store     store                // checkpoint store of all tasks
	zeros     bool                 // the chief's first values are zeros
	arrived   func(rank int, p layout.Piece)
}

func newJob(t testing.TB, d layout.Declaration, a policy.Architecture, servers int) *testJob {
	t.Helper()
	if err := d.AssignPieces(a, servers, 0); err != nil {
		t.Fatal(err)
	}
	j := &testJob{key: cluster.PeerKey([]byte("secret"), 0), d: d, servers: servers, listeners: map[cluster.Task]*peers.Listener{}}
	for rank := range d.Workers {
		j.listen(t, worker(rank))
	}
	for i := range servers {
		j.listen(t, server0(i))
	}
	for i := range servers {
		j.serve(t, i)
	}
	return j
}

func (j *testJob) listen(t testing.TB, task cluster.Task) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j.cluster.Set(task, ln.Addr().String())
	j.listeners[task] = peers.Listen(keeper{ln, &j.conns}, j.peers(task))
	t.Cleanup(func() { within(t, closed(j.listeners[task])) })
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
	j.served, j.routes = append(j.served, nil), append(j.routes, nil)
	j.run(ctx, i, ended, nil)
	t.Cleanup(func() {
		j.stop[i]()
		within(t, j.ended[i])
	})
}

// run starts server i. change, if not nil, may modify its configuration.
func (j *testJob) run(ctx context.Context, i int, ended chan error, change func(*server.Config)) {
	spec := j.cluster
	j.routes[i] = slices.Clone(spec.PS)
	spec.PS = j.routes[i]
	c := server.Config{Peers: j.peers(server0(i)), Listener: j.listeners[server0(i)], Cluster: spec, Checkpoints: &j.store, Memory: j.memory(server0(i))}
	if change != nil {
		change(&c)
	}
	s := server.New(c)
	j.served[i] = s
	go func() {
		ended <- s.Run(ctx)
		close(ended)
	}()
}

// again restarts a server before the first worker has connected to it.
func (j *testJob) again(t testing.TB, i int, change func(*server.Config)) {
	t.Helper()
	j.stop[i]()
	within(t, j.ended[i])
	for _, purpose := range []string{message.ToHolder, transition.Purpose} {
		j.listeners[server0(i)].Handle(purpose, nil) // makes workers wait until the new server registers its handlers
	}
	ctx, cancel := context.WithCancel(context.Background())
	j.stop[i], j.ended[i] = cancel, make(chan error, 1)
	j.run(ctx, i, j.ended[i], change)
}

// keeper is a listener that stores the connections that it accepts.
type keeper struct {
	net.Listener
	conns *sync.Map
}

func (k keeper) Accept() (net.Conn, error) {
	conn, err := k.Listener.Accept()
	if err == nil {
		k.conns.Store(conn.RemoteAddr().String(), conn)
	}
	return conn, err
}

// sends sends frames to a connected worker as if the server had sent them. The
// worker may close the connection before it has read all of them.
func (j *testJob) sends(t testing.TB, s *server.Server, rank int, frames ...wire.Frame) {
	t.Helper()
	conn, ok := j.conns.Load(s.Workers()[rank].Addr)
	if !ok {
		t.Fatalf("worker:%d is not connected", rank)
	}
	near, far := net.Pipe()
	encoder := wire.NewConn(near, 0, time.Hour)
	go func() {
		encoder.Send(frames...) // to memory
		encoder.Close()
	}()
	b, err := io.ReadAll(far)
	if err != nil {
		t.Fatal(err)
	}
	conn.(net.Conn).Write(b) // in one write, so that no frame of the server comes between; an error means that the worker has hung up
}

func (j *testJob) config(rank int, values [][]byte) Config {
	c := Config{Peers: j.peers(worker(rank)), Listener: j.listeners[worker(rank)], Cluster: j.cluster,
		Declaration: j.d, Values: values, Checkpoints: &j.store, Memory: j.memory(worker(rank))}
	if j.arrived != nil {
		c.Arrived = func(p layout.Piece) { j.arrived(rank, p) }
	}
	if slices.Contains(j.bare, worker(rank)) {
		c.Checkpoints = nil
	}
	if rank < len(j.traces) {
		c.Trace = j.traces[rank]
	}
	if rank < len(j.views) {
		c.Cluster = j.views[rank]
	}
	return c
}

// serverOf returns server i of a job, which must be ready for steps.
func serverOf(t *testing.T, j *testJob, i int) *server.Server {
	t.Helper()
	if !j.served[i].Opened() {
		t.Fatalf("ps:%d is not open", i)
	}
	return j.served[i]
}

// member is one worker of a testJob.
type member struct {
	*Client
	values [][]byte
	rank   int
}

// connect connects all workers. The chief's first values are those of seed 1.
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

// take takes one step. Virtual workers for which present returns false have no
// data.
func (m *member) take(ctx context.Context, s uint64, rate float64, present func(int) bool) (Outcome, error) {
	var absent []int
	for leaf := m.virtual.Lo; leaf < m.virtual.Hi; leaf++ {
		if !present(leaf) {
			absent = append(absent, leaf)
		}
	}
	if err := m.Begin(rate, absent...); err != nil {
		return Outcome{}, err
	}
	var lanes sync.WaitGroup
	sums := make([][]float64, m.virtual.Len())
	for leaf := m.virtual.Lo; leaf < m.virtual.Hi; leaf++ {
		if !present(leaf) {
			continue
		}
		lanes.Go(func() { m.compute(ctx, leaf, s) })
		for i := range 1 + m.holders.d.Metrics {
			sums[leaf-m.virtual.Lo] = append(sums[leaf-m.virtual.Lo], lossOf(i, leaf, s))
		}
	}
	lanes.Wait()
	return m.Finish(ctx, sums)
}

func (m *member) compute(ctx context.Context, leaf int, s uint64) {
	for i := len(m.holders.d.Variables) - 1; i >= 0; i-- {
		if m.holders.d.Variables[i].Sparse != nil {
			index, values := rowsOf(m.holders.d, i, leaf, s)
			m.ContributeRows(leaf, i, index, values)
			continue
		}
		gradient(m.holders.d, m.Gradient(leaf, i), i, leaf, s)
		m.Contribute(leaf, i)
	}
}

// step makes all workers take step s in parallel.
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

// leave closes all workers, and fails the test if a worker or a server returns
// an error.
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

// within returns the next value from ch. It fails the test if there is none
// within patience.Limit.
func within[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case got := <-ch:
		return got
	case <-time.After(patience.Limit):
		t.Fatal("nothing happened")
		panic("unreachable")
	}
}

// checkSteps trains, and after every step compares all bits with the reference
// implementation.
func checkSteps(t *testing.T, j *testJob, steps uint64) {
	t.Helper()
	members := j.connect(t)
	n := newReference(&j.d)
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
		if err := members[len(members)-1].Rows.Whole(context.Background(), i, got); err != nil {
			t.Fatal(err)
		}
		if string(got) != string(n.table(i)) {
			t.Fatalf("%s differs from the reference", v.Name)
		}
	}
	leave(t, j, members)
}
