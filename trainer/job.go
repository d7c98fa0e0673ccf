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

// Job describes the job that a worker process belongs to: the worker's rank,
// the number of workers, the seed. A program that plx did not launch is the
// only worker of its job, and so the chief (worker 0).
type Job struct {
	contract cluster.Contract
	config   config.Effective // configuration that Main received; the session has its own copy, with the changes of Parallelize
	virtual  int              // number of virtual workers (equal parts of each batch) of the whole job
	host     host
	log      *printer
	out      io.Writer                          // the program's standard output, for the digest line
	tell     func(cluster.ControlMessage) error // sends a message to plx's agent; nil if plx did not launch the program
	network  *network
	progress progress

	parallelized atomic.Bool             // true once a call of Parallelize has begun; a second call is an error
	session      atomic.Pointer[Session] // session that Parallelize has returned; nil before that
}

// host describes the libraries and the GPU with which a worker computes.
type host struct {
	library  string      // the BLAS library, for the log line at the start
	numerics string      // libraries and processor features that decide the bits of a result
	device   *gpu.Device // the worker's GPU; nil means that it computes on the CPU
	updates  bool        // only for tests: the CPU updates all variables, even those that a GPU could update
}

// progress is how far this worker has trained. The task sends it to plx's
// agent in heartbeats.
type progress struct {
	steps atomic.Int64            // number of training steps taken, including those before the last restart
	loss  atomic.Pointer[float64] // loss of the last step that this process took part in; nil before its first step
	once  sync.Once
	begun chan struct{} // closed after the first step of this process
}

// took records that this process has completed a step. steps is the number of
// steps of the training so far.
func (p *progress) took(steps int) {
	p.steps.Store(int64(steps))
	p.once.Do(func() { close(p.begun) })
}

// soloContract is the contract of a program that plx did not launch: a job
// with one worker. A contract holds the settings that a launcher passes in
// PLX_* environment variables.
var soloContract = cluster.Contract{Task: cluster.Chief, WorldSize: 1, LocalWorldSize: 1}

// newJob returns a Job for the contract c, which holds the launcher's settings
// for this task. tell sends a message to plx's agent; it is nil without an
// agent.
func newJob(c cluster.Contract, conf config.Effective, log, out io.Writer, tell func(cluster.ControlMessage) error) (*Job, error) {
	level, err := parseLevel(c.LogLevel)
	if err != nil {
		return nil, err
	}
	if c.Job != "" && level == slog.LevelInfo {
		level = cluster.VerboseLevel // the job's log files keep verbose lines; the launcher does not print them
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

// NumWorkers returns the number of workers in the job.
func (j *Job) NumWorkers() int { return j.contract.WorldSize }

// WorkerID returns this worker's rank in the job, counted from 0.
func (j *Job) WorkerID() int { return j.contract.Task.Index }

// NumReplicasPerWorker returns the number of virtual workers (equal parts of
// each batch) that this worker computes. It is 1 unless --replicas,
// --accumulate or --virtual-workers is set. If the number of workers does not
// divide NumShards, some workers compute one virtual worker more than others.
func (j *Job) NumReplicasPerWorker() int { return j.part(j.WorkerID()).Len() }

// NumShards returns the number of virtual workers (equal parts of each batch)
// of the job. [Shard] divides a dataset into this number of shards.
func (j *Job) NumShards() int { return j.virtual }

// EvenBatch returns the smallest multiple of NumShards that is at least rows.
// Every batch must divide equally among the virtual workers, so EvenBatch
// suits programs that run on any number of workers.
func (j *Job) EvenBatch(rows int) int { return (max(rows, 1) + j.virtual - 1) / j.virtual * j.virtual }

// ShardID returns the number of this worker's first virtual worker, which is
// also the number of its first data shard. The worker computes
// NumReplicasPerWorker consecutive virtual workers.
func (j *Job) ShardID() int { return j.part(j.WorkerID()).Lo }

// part returns the range of virtual workers that the worker with the given
// rank computes.
func (j *Job) part(rank int) layout.Range {
	return layout.Range{Lo: rank * j.virtual / j.NumWorkers(), Hi: (rank + 1) * j.virtual / j.NumWorkers()}
}

// Seed returns the value of --seed, from which initial weights, shuffling and
// dropout follow.
func (j *Job) Seed() uint64 { return j.config.Seed }

// IsChief reports whether this worker is the chief, worker 0. Programs usually
// print and save results only on the chief.
func (j *Job) IsChief() bool { return j.contract.Task.IsChief() }

// LocalRank returns this worker's index among the workers on its host, counted
// from 0.
func (j *Job) LocalRank() int { return j.contract.LocalRank }

// LocalWorldSize returns the number of workers on this host.
func (j *Job) LocalWorldSize() int { return j.contract.LocalWorldSize }

// ID returns the launcher's name for the job, or "" without a launcher.
func (j *Job) ID() string { return j.contract.Job }

// Generation returns how often the job was restarted. It is 0 for the first
// start.
func (j *Job) Generation() int { return j.contract.Generation }

// servers returns the number of parameter servers of the job.
func (j *Job) servers() int { return len(j.contract.Cluster.PS) }

// Logf writes a line to stderr, unless level is lower than the level in the
// environment variable PLX_LOG_LEVEL.
func (j *Job) Logf(level slog.Level, format string, args ...any) { j.log.Logf(level, format, args...) }

// tolerates returns an error if the job cannot continue with the given number
// of workers, for example because --sync does not allow that number.
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

// The methods from Broadcast to Barrier are collectives, as MPI and NCCL have
// them. Every worker must call the same collectives in the same order. The
// parameters x, src and dst are []float32, []float64 or []int64.
//
// A collective returns an error if a worker is lost, calls another collective
// or passes another length. The error names that worker. If ctx ends, the
// collective returns an error too, within bounded time. Collectives work even
// without Parallelize.

// Broadcast copies the slice x of worker root to the slice x of all other
// workers.
func (j *Job) Broadcast(ctx context.Context, x any, root int) error {
	return j.collect("broadcast", func() error { return j.network.group.Broadcast(ctx, x, root) })
}

// Scatter divides src of worker root into one equal part per worker. It copies
// part i to dst of the worker with rank i. On workers other than root, src may
// be nil.
func (j *Job) Scatter(ctx context.Context, src, dst any, root int) error {
	return j.collect("scatter", func() error { return j.network.group.Scatter(ctx, src, dst, root) })
}

// Gather concatenates src of all workers, in the order of ranks, and stores
// the result in dst of worker root. On workers other than root, dst may be nil.
func (j *Job) Gather(ctx context.Context, src, dst any, root int) error {
	return j.collect("gather", func() error { return j.network.group.Gather(ctx, src, dst, root) })
}

// AllGather concatenates src of all workers, in the order of ranks, and stores
// the result in dst of every worker.
func (j *Job) AllGather(ctx context.Context, src, dst any) error {
	return j.collect("all-gather", func() error { return j.network.group.AllGather(ctx, src, dst) })
}

// ReduceScatter adds up src of all workers, element by element. It divides the
// sum into one part per worker, in the order of ranks, and stores each part in
// dst of its worker. If the length of the sum is no
// multiple of the number of workers, the first parts have one element more.
func (j *Job) ReduceScatter(ctx context.Context, src, dst any) error {
	return j.collect("reduce-scatter", func() error { return j.network.group.ReduceScatter(ctx, src, dst) })
}

// AllReduce adds up the slices x of all workers, element by element, and
// stores the sum in x on every worker. The sum has the same bits on every
// worker.
func (j *Job) AllReduce(ctx context.Context, x any) error {
	return j.collect("all-reduce", func() error { return j.network.group.AllReduce(ctx, x) })
}

// Barrier blocks until all workers of the job have called it.
func (j *Job) Barrier(ctx context.Context) error {
	return j.collect("barrier", func() error { return j.network.group.Barrier(ctx) })
}

// Any returns true on every worker if at least one worker calls it with yes.
// Workers can use it to stop training early in the same step.
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

// CheckParameters compares the workers' copies of every variable bit by bit.
// The error names the first variable that differs, and a worker whose copy
// differs. All workers must call CheckParameters after the same step of
// synchronous training. It skips the rows of embedding tables, because only
// one shard holder has a copy of each row.
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
