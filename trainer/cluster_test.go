package trainer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/peers"
)

// testJob is a job whose workers and servers run as goroutines of the test
// process.
type testJob struct {
	jobs   []*Job
	ps     []*Job
	logs   []*bytes.Buffer
	served []chan error
}

func newTestJob(t testing.TB, workers, servers int, settings ...Setting) *testJob {
	t.Helper()
	return newTestJobOn(t, slices.Repeat([]string{"127.0.0.1"}, workers), servers, settings...)
}

// newTestJobOn is like newTestJob, but with a host address for each worker.
func newTestJobOn(t testing.TB, hosts []string, servers int, settings ...Setting) *testJob {
	t.Helper()
	tj, workers := &testJob{}, len(hosts)
	conf := config.Default().With(settings...)
	if err := conf.Check(); err != nil {
		t.Fatal(err)
	}
	spec, listeners := testSockets(t, hosts, servers)
	for task, ln := range listeners {
		contract := cluster.Contract{Task: task, WorldSize: workers, LocalRank: task.Index, LocalWorldSize: workers, Cluster: spec, LogLevel: "verbose"}
		j, err := newJob(contract, conf, new(bytes.Buffer), new(bytes.Buffer), nil)
		if err != nil {
			t.Fatal(err)
		}
		j.host.library, j.network.key = "gonum", cluster.PeerKey([]byte("secret"), 0)
		j.network.listener = peers.Listen(ln, j.network.peers())
		if task.Role == cluster.PS {
			tj.ps = append(tj.ps, j)
		} else {
			tj.jobs = append(tj.jobs, j)
		}
		t.Cleanup(func() { j.network.listener.Close() })
	}
	tj.openStores(t)
	for _, j := range tj.ps {
		tj.serve(t, j)
	}
	slices.SortFunc(tj.jobs, func(a, b *Job) int { return a.WorkerID() - b.WorkerID() })
	for _, j := range tj.jobs {
		j.network.openGroup()
		t.Cleanup(func() { j.network.group.Close() })
		tj.logs = append(tj.logs, j.log.out.(*bytes.Buffer))
	}
	return tj
}

// eachHost is a placeholder in the name of a checkpoint folder, which stands
// for the task's host.
const eachHost = "HOST"

// openStores opens the checkpoint stores of all tasks of the job.
func (tj *testJob) openStores(t testing.TB) {
	t.Helper()
	var opening sync.WaitGroup
	all := append(slices.Clone(tj.jobs), tj.ps...)
	errs := make([]error, len(all))
	for i, j := range all {
		if j.config.CheckpointDir == "" {
			continue
		}
		host, _, err := net.SplitHostPort(j.contract.Cluster.Addr(j.contract.Task))
		if err != nil {
			t.Fatal(err)
		}
		j.config.CheckpointDir = strings.ReplaceAll(j.config.CheckpointDir, eachHost, host)
		opening.Go(func() { errs[i] = j.network.openStore(t.Context(), j.config.CheckpointDir, j.config.CheckpointKeep) })
		t.Cleanup(func() {
			if j.network.store != nil {
				j.network.store.Close()
			}
		})
	}
	opening.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// endStore closes the checkpoint store of a task, as a process does that has
// ended with err.
func (j *Job) endStore(err error) {
	if err == nil {
		j.network.leaveStore(context.Background())
	}
	if j.network.store != nil {
		j.network.store.Close()
	}
}

// testSockets opens a listening socket for every task of a job.
func testSockets(t testing.TB, hosts []string, servers int) (cluster.Spec, map[cluster.Task]net.Listener) {
	var spec cluster.Spec
	listeners := map[cluster.Task]net.Listener{}
	for i := range len(hosts) + servers {
		task, host := cluster.Task{Role: cluster.Worker, Index: i}, hosts[i%len(hosts)]
		if i >= len(hosts) {
			task = cluster.Task{Role: cluster.PS, Index: i - len(hosts)}
		}
		ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		spec.Set(task, ln.Addr().String())
		listeners[task] = ln
	}
	return spec, listeners
}

// serve runs a parameter server until the test ends.
func (tj *testJob) serve(t testing.TB, j *Job) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	tj.served = append(tj.served, served)
	go func() {
		err := (&task{job: j}).serve(ctx)
		j.endStore(err)
		served <- err
		close(served)
	}()
	t.Cleanup(func() { cancel(); <-served })
}

// soloJob returns a job with a single worker, like that of a program without a
// launcher.
func soloJob(log io.Writer, settings ...Setting) *Job {
	conf := config.Default().With(settings...)
	j, err := newJob(soloContract, conf, log, io.Discard, nil)
	if err != nil {
		panic(err)
	}
	j.network.openGroup()
	return j
}

// all runs do for each worker in parallel and returns their errors.
func (tj *testJob) all(do func(j *Job) error) []error {
	errs := make([]error, len(tj.jobs))
	var running sync.WaitGroup
	for i, j := range tj.jobs {
		running.Go(func() {
			errs[i] = do(j)
			if r := j.session.Load(); r != nil {
				errs[i] = errors.Join(errs[i], r.close(errs[i]))
			}
			j.endStore(errs[i])
		})
	}
	running.Wait()
	return errs
}

// end runs the program on every worker as Main would, including the work after
// the program has returned and the goodbye to the shard holders.
func (tj *testJob) end(program func(ctx context.Context, j *Job) error) []error {
	errs := make([]error, len(tj.jobs))
	var running sync.WaitGroup
	for i, j := range tj.jobs {
		running.Go(func() {
			errs[i] = (&task{job: j}).work(context.Background(), program)
			j.endStore(errs[i])
		})
	}
	running.Wait()
	return errs
}

// wait waits for the servers, which must be about to end, and returns their
// errors.
func (tj *testJob) wait() error {
	var errs []error
	for _, served := range tj.served {
		errs = append(errs, <-served)
	}
	return errors.Join(errs...)
}
