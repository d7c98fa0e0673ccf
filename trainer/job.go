package trainer

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/depot"
	"github.com/plx-run/plx/trainer/mesh"
	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/peers"
)

// Job is what a worker knows of the job it belongs to. A program that runs by
// itself is the chief and only worker of a job of its own.
type Job struct {
	contract cluster.Contract
	config   config
	key      cluster.Key
	level    slog.Level
	library  string // what computes, for the start line
	numerics string // what decides the bits of a result
	leaves   int    // virtual workers of the whole job

	quietly time.Duration // waits without a word, 0: waitQuietly

	logging sync.Mutex
	log     io.Writer
	out     io.Writer // the program's own output

	door *peers.Door // nil where nobody is to connect
	mesh *mesh.Mesh  // between the workers

	depot *depot.Depot // nil: no checkpoints

	tell func(cluster.ControlMessage) error // the agent; nil: there is none

	steps        atomic.Int64
	first        sync.Once     // step of this process
	begun        chan struct{} // closed when it was made; nil where nobody is to hear of it
	over         atomic.Bool   // the process goes on with another generation
	parallelized atomic.Bool
	replica      atomic.Pointer[Replica]
}

// soloContract is what a program that runs by itself is told.
var soloContract = cluster.Contract{Task: cluster.Chief, WorldSize: 1, LocalWorldSize: 1}

// newJob reads what a contract points to.
func newJob(c cluster.Contract, conf config, log, out io.Writer) (*Job, error) {
	level, err := parseLevel(c.LogLevel)
	if err != nil {
		return nil, err
	}
	j := &Job{contract: c, config: conf, level: level, log: log, out: out, begun: make(chan struct{})}
	if c.Task.Role == cluster.Worker {
		if err := conf.suits(c.WorldSize, len(c.Cluster.PS)); err != nil {
			return nil, err
		}
		if j.leaves, err = conf.leaves(c.WorldSize, c.FirstWorldSize); err != nil {
			return nil, err
		}
	}
	if c.SecretFile == "" {
		return j, nil
	}
	secret, err := c.Secret()
	if err != nil {
		return nil, err
	}
	j.key = cluster.PeerKey(secret, c.Generation)
	return j, nil
}

// NumWorkers is the number of workers in the job.
func (j *Job) NumWorkers() int { return j.contract.WorldSize }

// WorkerID is this worker's rank, from 0.
func (j *Job) WorkerID() int { return j.contract.Task.Index }

// NumReplicasPerWorker is how many virtual workers this worker computes: one
// unless --replicas, --accumulate or --virtual-workers say more. Where the
// number of workers does not divide the virtual ones, workers differ in it.
func (j *Job) NumReplicasPerWorker() int {
	lo, hi := j.shards(j.WorkerID())
	return hi - lo
}

// NumShards is the number of data shards: one per virtual worker of the job.
func (j *Job) NumShards() int { return j.leaves }

// ShardID is this worker's data shard, the first of NumReplicasPerWorker
// consecutive ones.
func (j *Job) ShardID() int {
	lo, _ := j.shards(j.WorkerID())
	return lo
}

// shards is the half-open range of virtual workers that a worker computes.
func (j *Job) shards(rank int) (lo, hi int) {
	return rank * j.leaves / j.NumWorkers(), (rank + 1) * j.leaves / j.NumWorkers()
}

// Seed is what --seed says: first values, shuffling and dropout follow from it.
func (j *Job) Seed() uint64 { return j.config.seed }

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

func (j *Job) servers() []string { return j.contract.Cluster.PS }

// mode is how far workers drift apart.
func (j *Job) mode() (owner.Sync, error) { return j.config.mode(j.NumWorkers(), len(j.servers())) }

// usable refuses what a program has kept of a generation that is over. Why that
// one broke is no error of the present one.
func (j *Job) usable() error {
	if j.over.Load() {
		return fmt.Errorf("generation %d is over: a job and its replica are of use only in the call of train that was given them", j.Generation())
	}
	return nil
}

// Logf writes a line to stderr, unless level is below PLX_LOG_LEVEL.
func (j *Job) Logf(level slog.Level, format string, args ...any) {
	if level < j.level {
		return
	}
	text := fmt.Sprintf(format, args...)
	if level != slog.LevelInfo {
		text = strings.ToLower(level.String()) + ": " + text
	}
	j.logging.Lock()
	defer j.logging.Unlock()
	fmt.Fprintf(j.log, "plx: %s\n", text) // nobody is left to be told of a broken stderr
}

// parseLevel reads PLX_LOG_LEVEL: a name, or a number as Python's logging has
// them (10 debug, 20 info, 30 warning, 40 error).
func parseLevel(s string) (slog.Level, error) {
	switch strings.ToLower(s) {
	case "", "info":
		return slog.LevelInfo, nil
	case "debug":
		return slog.LevelDebug, nil
	case "warn", "warning":
		return slog.LevelWarn, nil
	case "error", "critical":
		return slog.LevelError, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("PLX_LOG_LEVEL=%q: want debug, info, warn, error, or a number such as 20", s)
	}
	return slog.Level((n - 20) * 2 / 5), nil // 10 apart there, 4 apart here
}
