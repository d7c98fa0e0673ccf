package config

import (
	"time"

	"github.com/plx-run/plx/trainer/hooks"
)

// Config is the training configuration that the program passes to Main and to
// Parallelize. The zero value of a field means its default.
//
// A field has a flag of the same meaning, which its comment names:
// CheckpointEverySteps is --ckpt-every-steps, and NoPrefetch is
// --prefetch=false. A flag on the command line overrides the field, even with
// the value 0: --stop-at-step 0 overrides StopAtStep. Fields passed to
// Parallelize override those passed to Main. Fields that exclude each other
// are an error, wherever they are set.
type Config struct {
	// The following fields depend on the program's data and model. They have
	// no flags; a program that wants its user to choose them must define a
	// flag of its own.

	// GlobalBatch is the number of rows that all workers together process in a
	// step. The program must set GlobalBatch or ShardBatch. GlobalBatch must
	// be a multiple of the number of virtual workers (equal parts of a batch),
	// see Job.EvenBatch.
	GlobalBatch int
	// ShardBatch is the number of rows that each virtual worker (equal part of
	// a batch) processes in a step. If it is set, GlobalBatch is ShardBatch
	// times the number of virtual workers. 0: GlobalBatch must be set.
	ShardBatch int
	// ClipNorm is the maximum global norm of a step's gradient: the square
	// root of the sum of squares over all variables. A larger gradient is
	// scaled down to this norm (Pascanu et al. 2013). 0: gradients are not
	// clipped.
	ClipNorm float64
	// MeasureNorm makes each step report the global norm of its gradient in
	// Result.Norm.
	MeasureNorm bool
	// AtEndOfData is what a worker does when its data ends before the data of
	// other workers. 0 is WaitForAll.
	AtEndOfData Ending
	// Hooks are functions that the trainer calls at certain moments of the
	// training. Every worker must pass the same hooks, including those that
	// only the chief (worker 0) calls. Hooks passed to Parallelize replace
	// those passed to Main.
	//
	// A hook stops the training by returning ErrDone. In sync mode all workers
	// then stop after the same step: after each step that calls such a hook,
	// each worker reports to the others whether it stops. In other modes a
	// hook stops only its own worker. After the last step a call of Step
	// returns ErrDone.
	Hooks []hooks.Hook
	// StartTimeout is how long Parallelize waits for the other tasks of the
	// job. 0: 2 minutes.
	StartTimeout time.Duration
	// PeerTimeout is the time without any message, even a heartbeat, after
	// which a worker considers another task lost. 0: 30 seconds.
	PeerTimeout time.Duration

	// Main reads the following fields before it runs the program. Parallelize
	// returns an error if it is passed other values for them.

	// Seed is the seed of the random numbers for initial values, shuffling and
	// dropout. Flag --seed.
	Seed uint64
	// VirtualWorkers is the number of equal parts into which each batch is
	// divided. The training results are bit-identical for any number of
	// workers up to VirtualWorkers. A job on hosts with different
	// floating-point arithmetic is rejected. 0: the number of workers times
	// Replicas times Accumulate. Flag --virtual-workers.
	VirtualWorkers int
	// Replicas is the number of copies of the model that one worker computes.
	// With R replicas each, W workers get the same bits as W*R workers with
	// one replica each. 0: 1. Flag --replicas.
	Replicas int
	// Accumulate is the number of batches whose gradients a replica adds
	// before each update of the variables. The results are those of Accumulate
	// times as many workers, but a worker needs memory for one batch only. 0:
	// 1. Flag --accumulate.
	Accumulate int
	// Device is where workers compute: "cpu", "gpu", or "auto" for the GPU
	// that the launcher assigned to the worker, or the CPU if it assigned
	// none. Empty: auto. Flag --device.
	Device string
	// CheckpointDir is the folder on every host in which checkpoints are
	// written. Empty: no checkpoints are written. Flag --ckpt-dir.
	CheckpointDir string
	// CheckpointKeep is the number of newest checkpoints to keep; older ones
	// are deleted. 0: 3. Flag --ckpt-keep.
	CheckpointKeep int

	// The remaining fields can be set in Parallelize or in Main.

	// Arch selects which tasks hold the variables: "ps" (parameter servers),
	// "allreduce" (workers), "hybrid" (servers hold sparse variables, workers
	// dense variables) or "auto". Empty: hybrid, or ps if Sync needs it. Flag
	// --arch.
	Arch string
	// Sync selects how workers wait for each other: "sync", "async", "ssp:K",
	// "group:G" or "backup:B"; docs/synchronisation.md describes these modes.
	// Empty: sync. Flag --sync.
	Sync string
	// ParallelReplicas is the number of replicas (copies of the model) that a
	// worker computes in parallel. 0: depends on the number of CPU cores of
	// the host. Flag --parallel-replicas.
	ParallelReplicas int

	// InitFrom is a folder of checkpoints, or a file of tensors, on the
	// chief's host. Variables start with the values of tensors of the same
	// name, type and shape. Empty: all variables start with the program's
	// initial values. Flag --init-from.
	InitFrom string
	// Digest makes the chief (worker 0) print a hash of all variables at the
	// end. Like VirtualWorkers, it makes the trainer reject initial values
	// that may differ between builds of the program. Flag --digest.
	Digest bool
	// StopAtStep is the number of steps after which training stops. 0: the
	// program decides. Flag --stop-at-step.
	StopAtStep int
	// CheckParameters is the interval, in steps, at which the values of all
	// variables are compared between all workers. 0: they are never compared.
	// Flag --check-parameters.
	CheckParameters int
	// CheckNumerics checks every gradient for NaN and Inf, not only the loss.
	// Flag --check-numerics.
	CheckNumerics bool

	// BucketBytes is the size in bytes of the groups of gradients that are
	// all-reduced together. 0: 1 MiB. Flag --bucket-bytes.
	BucketBytes int
	// PartitionBytes is the size in bytes above which a variable is split
	// across servers. 0: 4 MiB. Flag --partition-bytes.
	PartitionBytes int
	// Partitions is the number of partitions of each embedding table that has
	// a partitioner. 0: the autotuner finds the fastest number. Flag
	// --partitions.
	Partitions int
	// MinPartitions is the minimum number of partitions of each embedding
	// table that has a partitioner. 0: the table's partitioner decides. Flag
	// --min-partitions.
	MinPartitions int
	// MaxPartitions is the maximum number of partitions that the autotuner
	// tries. 0: 16 for each task that holds tables. Flag --max-partitions.
	MaxPartitions int
	// NoSearchPartitions keeps the autotuner from trying different numbers of
	// partitions during the training. Flag --search-partitions=false.
	NoSearchPartitions bool
	// CombineRows is how the virtual workers' gradients of an embedding
	// table's rows are combined, for tables that do not specify it: "loss"
	// (like the loss, as a sum or mean), "add" or "average". Empty: loss. Flag
	// --combine-rows.
	CombineRows string
	// NoLocalAggregation makes each worker send its own gradients to the
	// servers. By default the workers of a host add up their gradients first.
	// Flag --local-aggregation=false.
	NoLocalAggregation bool
	// NoFindSparse keeps a variable dense even if the model only looks up
	// single rows of it. By default such a variable becomes an embedding
	// table. Flag --find-sparse=false.
	NoFindSparse bool
	// Balance selects how tables are distributed over servers: by "load", the
	// measured traffic, or by "bytes", their size. Empty: load. Flag
	// --balance.
	Balance string
	// NoPrefetch keeps workers from requesting the embedding rows of the next
	// step in advance. Flag --prefetch=false.
	NoPrefetch bool
	// TuneAfterSteps is the number of steps before the autotuner makes its first
	// decision. 0: 10. It has no flag.
	TuneAfterSteps int
	// Report is the number of steps after which the chief (worker 0) reports
	// the network traffic. 0: 50. It has no flag.
	Report int

	// SummaryDir is the folder in which the chief (worker 0) writes
	// TensorBoard event files and JSON lines. Empty: none are written. Flag
	// --summary-dir.
	SummaryDir string
	// SummaryEverySteps is the number of steps between two summaries. 0: 100.
	// Flag --summary-every-steps.
	SummaryEverySteps int
	// ExportGraph is the file to which the model's graph is written, as DOT or
	// JSON by its extension; with any other extension both are written. Empty:
	// none is written. Flag --export-graph.
	ExportGraph string
	// ProfileSteps lists the steps for which workers write a timeline: numbers
	// and ranges, such as "5,10:12". Empty: no timeline is written. Flag
	// --profile-steps.
	ProfileSteps string
	// ProfileWorkers lists the workers that write a timeline, such as "0,4:8".
	// Empty: all workers. Flag --profile-workers.
	ProfileWorkers string
	// ProfileDir is the folder in which timelines are written. Empty: the
	// task's own folder. Flag --profile-dir.
	ProfileDir string

	// CheckpointEverySteps is the number of steps between two checkpoints. If
	// a checkpoint is due while the previous one is still being written, it is
	// made once the previous one is complete. 0: checkpoints are not written
	// by steps. Flag --ckpt-every-steps.
	CheckpointEverySteps int
	// CheckpointEverySecs is the time between two checkpoints, in seconds. 0:
	// 600, or none if CheckpointEverySteps is set. Flag --ckpt-every-secs.
	CheckpointEverySecs int
}

// Ending selects what happens when the program of one worker runs out of data
// and returns from train before the other workers.
type Ending int

const (
	// WaitForAll means that all workers must take the same number of steps. If
	// a worker ends before the others, that is an error, which names the
	// worker.
	WaitForAll Ending = iota
	// JoinOthers makes a worker without data take part in the steps of the
	// other workers until the last of them ends. A mean is then taken only
	// over the workers that have data.
	JoinOthers
	// EndTogether stops all workers after the first step for which a worker
	// has no data.
	EndTogether
)
