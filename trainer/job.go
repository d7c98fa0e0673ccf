package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/executor/gpu"
	"github.com/plx-run/plx/trainer/layout"
)

// Job is what a worker knows of the job it belongs to. A program that runs by
// itself is the chief and only worker of a job of its own.
type Job struct {
	contract cluster.Contract
	config   config.Effective // as Main has it; what Parallelize adds is the session's
	virtual  int              // number of virtual workers of the whole job
	host     host
	log      *printer
	out      io.Writer                          // the program's own output
	tell     func(cluster.ControlMessage) error // sends a message to the agent; nil without a launcher
	network  *network
	progress progress

	parallelized atomic.Bool             // Parallelize was called
	session      atomic.Pointer[Session] // nil until Parallelize has returned
}

// host is what a worker computes with.
type host struct {
	library  string      // the BLAS library, for the start line
	numerics string      // the properties of the host that decide the bits of a result
	device   *gpu.Device // the worker's GPU; nil means that it computes on the CPU
	updates  bool        // the CPU updates all variables, also those that a GPU could keep; tests set it
}

// progress is how far this worker has come. The task reports it to the agent.
type progress struct {
	steps atomic.Int64            // number of steps that this worker has made
	loss  atomic.Pointer[float64] // of the last of them; nil: not known
	once  sync.Once
	begun chan struct{} // closed after the first step of this process
}

// took notes that a step of this process has ended, after which there are so many.
func (p *progress) took(steps int) {
	p.steps.Store(int64(steps))
	p.once.Do(func() { close(p.begun) })
}

// soloContract is the contract of a program that runs by itself.
var soloContract = cluster.Contract{Task: cluster.Chief, WorldSize: 1, LocalWorldSize: 1}

// newJob reads what a contract points to. tell sends to the agent, nil without one.
func newJob(c cluster.Contract, conf config.Effective, log, out io.Writer, tell func(cluster.ControlMessage) error) (*Job, error) {
	level, err := parseLevel(c.LogLevel)
	if err != nil {
		return nil, err
	}
	if c.Job != "" && level == slog.LevelInfo {
		level = cluster.VerboseLevel // for the job's logs: the launcher hides these lines
	}
	p := &printer{level: level, out: log}
	n, err := newNetwork(c, p)
	if err != nil {
		return nil, err
	}
	j := &Job{contract: c, config: conf, log: p, out: out, tell: tell, network: n, progress: progress{begun: make(chan struct{})}}
	if c.Task.Role != cluster.Worker {
		return j, nil
	}
	if err := conf.Suits(c.WorldSize, len(c.Cluster.PS)); err != nil {
		return nil, err
	}
	j.virtual, err = conf.CountVirtual(c.WorldSize, c.FirstWorldSize)
	return j, err
}

// NumWorkers is the number of workers in the job.
func (j *Job) NumWorkers() int { return j.contract.WorldSize }

// WorkerID is this worker's rank, from 0.
func (j *Job) WorkerID() int { return j.contract.Task.Index }

// NumReplicasPerWorker is how many virtual workers this worker computes: one
// unless --replicas, --accumulate or --virtual-workers say more. If the number of
// workers does not divide the number of virtual workers, workers differ in it.
func (j *Job) NumReplicasPerWorker() int { return j.part(j.WorkerID()).Len() }

// NumShards is the number of virtual workers of the job. Data is cut in as many
// shards, see [Shard].
func (j *Job) NumShards() int { return j.virtual }

// EvenBatch is the smallest batch of at least so many rows of which all virtual workers take
// the same number: for a program that runs on any number of workers.
func (j *Job) EvenBatch(rows int) int { return (max(rows, 1) + j.virtual - 1) / j.virtual * j.virtual }

// ShardID is this worker's first virtual worker, and the shard of the data that
// belongs to it. NumReplicasPerWorker consecutive ones are this worker's.
func (j *Job) ShardID() int { return j.part(j.WorkerID()).Lo }

// part is the range of virtual workers that a worker computes.
func (j *Job) part(rank int) layout.Range {
	return layout.Range{Lo: rank * j.virtual / j.NumWorkers(), Hi: (rank + 1) * j.virtual / j.NumWorkers()}
}

// Seed is the number of --seed: first values, shuffling and dropout follow from it.
func (j *Job) Seed() uint64 { return j.config.Seed }

// IsChief reports whether this is worker 0, the one that prints and saves.
func (j *Job) IsChief() bool { return j.contract.Task.IsChief() }

// LocalRank is this worker's index among those of its host.
func (j *Job) LocalRank() int { return j.contract.LocalRank }

// LocalWorldSize is the number of workers on this host.
func (j *Job) LocalWorldSize() int { return j.contract.LocalWorldSize }

// ID is the launcher's name for the job, "" without a launcher.
func (j *Job) ID() string { return j.contract.Job }

// Generation counts the job's restarts, from 0.
func (j *Job) Generation() int { return j.contract.Generation }

// servers is the number of parameter servers.
func (j *Job) servers() int { return len(j.contract.Cluster.PS) }

// Logf writes a line to stderr, unless level is below PLX_LOG_LEVEL.
func (j *Job) Logf(level slog.Level, format string, args ...any) { j.log.Logf(level, format, args...) }

// tolerates returns why the job cannot go on with so many workers.
func (j *Job) tolerates(workers int) error {
	c := &j.config
	if s := j.session.Load(); s != nil {
		c = s.training.config
	}
	if err := c.Suits(workers, j.servers()); err != nil {
		return err
	}
	virtual, err := c.CountVirtual(workers, j.contract.FirstWorldSize)
	if err == nil && virtual != j.virtual {
		err = fmt.Errorf("%s, and it trains with %s: launch it with --virtual-workers %d", plural.Count(workers, "worker"), plural.Count(j.virtual, "virtual worker"), virtual)
	}
	return err
}

// The collectives put slices of all workers together; every worker must call
// the same ones in the same order. x, from and into are []float32, []float64
// or []int64. They return an error that names the worker to blame when one is
// lost, calls something else or brings another length, and in bounded time
// when ctx ends. They may be used with and without Parallelize.

// Broadcast copies x of worker root to x of all others.
func (j *Job) Broadcast(ctx context.Context, x any, root int) error {
	return j.collect("broadcast", func() error { return j.network.group.Broadcast(ctx, x, root) })
}

// Scatter cuts from of worker root in equal parts, one per worker in order,
// and copies each to its worker's into. Others may give nil for from.
func (j *Job) Scatter(ctx context.Context, from, into any, root int) error {
	return j.collect("scatter", func() error { return j.network.group.Scatter(ctx, from, into, root) })
}

// Gather copies from of every worker to into of worker root, in the order of
// ranks. Others may give nil for into.
func (j *Job) Gather(ctx context.Context, from, into any, root int) error {
	return j.collect("gather", func() error { return j.network.group.Gather(ctx, from, into, root) })
}

// AllGather copies from of every worker to into of all, in the order of ranks.
func (j *Job) AllGather(ctx context.Context, from, into any) error {
	return j.collect("all-gather", func() error { return j.network.group.AllGather(ctx, from, into) })
}

// ReduceScatter adds from of all workers and gives each its share of the sum:
// n elements are cut in order of the ranks, n/workers for each and one more
// for the first n mod workers.
func (j *Job) ReduceScatter(ctx context.Context, from, into any) error {
	return j.collect("reduce-scatter", func() error { return j.network.group.ReduceScatter(ctx, from, into) })
}

// AllReduce replaces x on every worker by the sum of all, the same bits on
// each.
func (j *Job) AllReduce(ctx context.Context, x any) error {
	return j.collect("all-reduce", func() error { return j.network.group.AllReduce(ctx, x) })
}

// Barrier returns when all workers have called it.
func (j *Job) Barrier(ctx context.Context) error {
	return j.collect("barrier", func() error { return j.network.group.Barrier(ctx) })
}

// Any tells all workers whether one of them said yes. It is how they decide
// together to stop early.
func (j *Job) Any(ctx context.Context, yes bool) (bool, error) {
	votes := []int64{0}
	if yes {
		votes[0] = 1
	}
	err := j.AllReduce(ctx, votes)
	return votes[0] > 0, err
}

func (j *Job) collect(what string, do func() error) error {
	defer j.log.waiting(func() string { return what })()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// CheckParameters compares every variable that workers hold on every worker,
// bit by bit, and names the first that differs and where. All workers must
// call it, after the same step of synchronous training. Rows of embeddings
// have one shard holder each and nothing to compare.
func (j *Job) CheckParameters(ctx context.Context) error {
	s := j.session.Load()
	if s == nil {
		return errors.New("check parameters: the job has no session: call Parallelize first")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if mode := s.training.declared.Sync; !mode.InStep() {
		return fmt.Errorf("check parameters: with --sync %s workers do not have the same variables at the same time", mode)
	}
	return s.variables.compare(ctx, j.network.group, s.step)
}
