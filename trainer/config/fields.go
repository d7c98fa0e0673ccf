package config

import (
	"time"

	"github.com/plx-run/plx/trainer/hooks"
)

// Config is how a job trains. The program writes it, for Main and for Parallelize.
// Zero means the default of a field.
//
// A field has the name of its flag: CheckpointEverySteps is --ckpt-every-steps, and
// NoPrefetch is --prefetch=false. A flag that the user gives wins over the field, zero
// too: --stop-at-step 0 takes no notice of StopAtStep. Fields of Parallelize win over
// those of Main. Fields that exclude each other are an error, wherever they come from.
type Config struct {
	// These fields describe what the program's data and model depend on. They have no
	// flags: a program that lets its user choose has a flag of its own.

	// GlobalBatch is the number of rows that all workers together take in a step. Each
	// program must set it, or ShardBatch. The number of virtual workers must divide it, see
	// Job.EvenBatch.
	GlobalBatch int
	// ShardBatch is the number of rows that each virtual worker takes in a step, so that
	// GlobalBatch follows from the number of workers. 0: GlobalBatch counts.
	ShardBatch int
	// ClipNorm is the largest global norm of a step's gradient: the root of the sum of
	// all squares over all variables. A larger gradient is scaled down to it (Pascanu et
	// al. 2013). 0: gradients are not clipped.
	ClipNorm float64
	// MeasureNorm has each step report the gradient's global norm, see Result.Norm.
	MeasureNorm bool
	// AtEndOfData is what a worker does whose data ends before that of others. 0: it is
	// WaitForAll.
	AtEndOfData Ending
	// Hooks have functions that are called at moments of the training. Every worker must
	// give the same hooks, also those that only the chief calls. Hooks of Parallelize take
	// the place of those of Main.
	//
	// A hook stops the training by returning ErrDone. In sync mode all workers then end
	// after the same step: after each step for which such a hook is due, the workers tell
	// each other whether one of them stops. In other modes the hook stops its own worker,
	// and the others go on. The call of Step after the last step returns ErrDone.
	Hooks []hooks.Hook
	// StartTimeout is how long Parallelize waits for the other tasks. 0: 2 minutes.
	StartTimeout time.Duration
	// PeerTimeout is how long another task may be silent, without even a heartbeat,
	// before it is taken for lost. 0: 30 seconds.
	PeerTimeout time.Duration

	// Main reads these fields before it runs the program. Parallelize refuses to change
	// them.

	// Seed is the number that first values, shuffling and dropout follow from. Flag --seed.
	Seed uint64
	// VirtualWorkers is the number of equal parts that each batch is cut into: the bits
	// are the same for any number of workers up to it, and a job on hosts whose
	// arithmetic differs is refused. 0: one for each replica and accumulated batch. Flag
	// --virtual-workers.
	VirtualWorkers int
	// Replicas is the number of replicas that a worker drives: the same bits as with so
	// many times as many workers. 0: 1. Flag --replicas.
	Replicas int
	// Accumulate is the number of batches whose gradients a replica adds in a step: the
	// same as so many times as many workers, with the memory of one. 0: 1. Flag
	// --accumulate.
	Accumulate int
	// Device is what workers compute on: "cpu", "gpu", or "auto" for the GPU that the
	// launcher gave the worker, if it gave one. Empty: auto. Flag --device.
	Device string
	// CheckpointDir is the folder on every host for checkpoints. Empty: there are no
	// checkpoints. Flag --ckpt-dir.
	CheckpointDir string
	// CheckpointKeep is the number of checkpoints that are kept. 0: 3. Flag --ckpt-keep.
	CheckpointKeep int

	// Parallelize, or Main, may set the rest.

	// Arch is which tasks hold variables: "ps", "allreduce", "hybrid" or "auto". Empty:
	// hybrid, or ps if Sync needs it. Flag --arch.
	Arch string
	// Sync is how far workers may drift apart: "sync", "async", "ssp:K", "group:G" or
	// "backup:B". Empty: sync. Flag --sync.
	Sync string
	// ParallelReplicas is the number of replicas that a worker computes side by side. 0:
	// as the host's cores allow. Flag --parallel-replicas.
	ParallelReplicas int

	// InitFrom is a folder of checkpoints, or a file of tensors, on the chief's host: variables
	// of the same name, type and shape begin with its values. Empty: all begin as the
	// program makes them. Flag --init-from.
	InitFrom string
	// Digest has the chief print a hash of all variables at the end. First values that
	// differ from build to build are refused, as with VirtualWorkers. Flag --digest.
	Digest bool
	// StopAtStep is the number of steps after which training ends. 0: the program ends
	// it. Flag --stop-at-step.
	StopAtStep int
	// CheckParameters is the number of steps between two comparisons of all variables of
	// all workers. 0: they are not compared. Flag --check-parameters.
	CheckParameters int
	// CheckNumerics looks for NaN and Inf in every gradient, not only in the loss. Flag
	// --check-numerics.
	CheckNumerics bool

	// BucketBytes is the size of gradients that travel together in an all-reduce, in
	// bytes. 0: 1 MiB. Flag --bucket-bytes.
	BucketBytes int
	// PartitionBytes is the size above which a variable is cut over servers, in bytes. 0:
	// 4 MiB. Flag --partition-bytes.
	PartitionBytes int
	// Partitions is the number of partitions of tables that have a partitioner. 0: the
	// autotuner finds it. Flag --partitions.
	Partitions int
	// MinPartitions is the smallest number of partitions of such tables. 0: what the
	// partitioner of a table says. Flag --min-partitions.
	MinPartitions int
	// MaxPartitions is the largest number that is tried. 0: 16 for each task that holds
	// tables. Flag --max-partitions.
	MaxPartitions int
	// NoSearchPartitions keeps the autotuner from trying numbers of partitions while
	// training goes on. Flag --search-partitions=false.
	NoSearchPartitions bool
	// CombineRows is how gradients of a table's rows are put together if the table does
	// not say it: "loss", as the loss is, "add" or "average". Empty: loss. Flag
	// --combine-rows.
	CombineRows string
	// NoLocalAggregation has each worker send its own gradients to servers. Otherwise
	// workers of a host add theirs first. Flag --local-aggregation=false.
	NoLocalAggregation bool
	// NoFindSparse keeps variables dense of which the model only looks up rows. Otherwise
	// they become tables. Flag --find-sparse=false.
	NoFindSparse bool
	// Balance is what tables are placed by: "load", what was measured to travel, or
	// "bytes", their size. Empty: load. Flag --balance.
	Balance string
	// NoPrefetch keeps workers from requesting rows of embeddings a step ahead. Flag
	// --prefetch=false.
	NoPrefetch bool
	// FirstMeeting is the number of steps before the autotuner's first decision. 0: 10.
	// It has no flag.
	FirstMeeting int
	// Report is the number of steps before the chief reports what was sent. 0: 50. It has
	// no flag.
	Report int

	// SummaryDir is the folder for the chief's TensorBoard event files and JSON lines.
	// Empty: there are none. Flag --summary-dir.
	SummaryDir string
	// SummaryEverySteps is the number of steps from one summary to the next. 0: 100. Flag
	// --summary-every-steps.
	SummaryEverySteps int
	// ExportGraph is the file for the model's graph: DOT or JSON by its extension, else
	// both. Empty: none is written. Flag --export-graph.
	ExportGraph string
	// ProfileSteps are the steps of the timeline: numbers and ranges, such as "5,10:12".
	// Empty: there is no timeline. Flag --profile-steps.
	ProfileSteps string
	// ProfileWorkers are the workers that write a timeline, such as "0,4:8". Empty: all.
	// Flag --profile-workers.
	ProfileWorkers string
	// ProfileDir is the folder for timelines. Empty: the task's own folder. Flag
	// --profile-dir.
	ProfileDir string

	// CheckpointEverySteps is the number of steps from one checkpoint to the next. One that
	// is due while another is written is made after that. 0: steps do not count. Flag
	// --ckpt-every-steps.
	CheckpointEverySteps int
	// CheckpointEverySecs is the time from one checkpoint to the next, in seconds. 0:
	// 600, or none if CheckpointEverySteps is set. Flag --ckpt-every-secs.
	CheckpointEverySecs int
}

// Ending is what the other workers do when one worker's program returns from train
// before theirs.
type Ending int

const (
	// WaitForAll makes the others wait for it. The program promises that all
	// workers take equally many steps; if one does not, the error names it.
	WaitForAll Ending = iota
	// JoinOthers makes it take part in the steps of the others, without data,
	// until the last one has ended. A mean is then over those that have data.
	JoinOthers
	// EndTogether ends all workers after the first step that one has no data for.
	EndTogether
)
