package trainer

import "github.com/plx-run/plx/trainer/config"

// Config defines how a job trains. A program passes a Config to [Main] and to
// [Job.Parallelize]. Fields whose values the program computes from the job are
// passed to Parallelize:
//
//	trainer.Main(train, trainer.Config{Sync: "ssp:4", CheckpointEverySteps: 1000})
//	...
//	session, err := job.Parallelize(ctx, build, optimizer, trainer.Config{GlobalBatch: 8 * job.NumShards()})
//
// A field of value zero has its default. Almost every field has a command-line
// flag, which overrides the field. See [config.Config] for details and the
// names of the flags.
//
// These fields have no flags. The program must set GlobalBatch or ShardBatch:
//
//   - GlobalBatch int: number of rows that all workers together process in a step
//   - ShardBatch int: number of rows that each virtual worker (equal part of a batch) processes in a
//     step; if set, GlobalBatch is ShardBatch times the number of virtual workers
//   - ClipNorm float64: maximum global norm of a step's gradient; 0: gradients are not clipped
//   - MeasureNorm bool: each step reports the gradient's global norm, see [Result]
//   - AtEndOfData Ending: what a worker does when its data ends before that of others; 0: [WaitForAll]
//   - Hooks []Hook: functions that the trainer calls at certain moments of the training, see [Hook]
//   - StartTimeout time.Duration: how long Parallelize waits for the other tasks; 0: 2 minutes
//   - PeerTimeout time.Duration: how long another task may send nothing before it counts as lost;
//     0: 30 seconds
//
// Main reads the following fields before it runs the program. Parallelize
// returns an error if it gets other values for them:
//
//   - Seed uint64: seed for initial values, shuffling and dropout
//   - VirtualWorkers int: number of equal parts into which each batch is divided, for bit-identical
//     results on any number of workers; 0: the product of the numbers of workers, Replicas and Accumulate
//   - Replicas int: number of copies of the model that a worker computes; 0: 1
//   - Accumulate int: number of batches whose gradients a replica adds up before an update; 0: 1
//   - Device string: "cpu", "gpu" or "auto"; empty: auto
//   - CheckpointDir string: folder on every host for checkpoints; empty: no checkpoints
//   - CheckpointKeep int: number of newest checkpoints to keep; 0: 3
//
// The remaining fields may be set in Main or in Parallelize:
//
//   - Arch string: which tasks hold the variables, "ps", "allreduce", "hybrid" or "auto"; empty:
//     hybrid, or ps if Sync needs it
//   - Sync string: how workers wait for each other, "sync", "async", "ssp:K",
//     "group:G" or "backup:B"; empty: sync
//   - ParallelReplicas int: number of replicas that a worker computes in parallel; 0: depends on
//     the number of CPU cores
//   - InitFrom string: checkpoint or safetensors file on the chief's host with initial values for
//     the variables of the same name, type and shape; empty: none
//   - Digest bool: the chief (worker 0) prints a hash of all variables at the end
//   - StopAtStep int: number of steps after which training ends; 0: the program decides
//   - CheckParameters int: number of steps between two comparisons of all workers' variables; 0: none
//   - CheckNumerics bool: look for NaN and Inf in every gradient, not only in the loss
//   - BucketBytes int: size of the groups of gradients that are all-reduced together; 0: 1 MiB
//   - PartitionBytes int: size above which a variable is split across servers; 0: 4 MiB
//   - Partitions int: number of partitions of each table that has a partitioner; 0: the autotuner
//     finds the fastest number
//   - MinPartitions int: minimum number of partitions; 0: the table's partitioner decides
//   - MaxPartitions int: maximum number of partitions that the autotuner tries; 0: 16 for each task
//     that holds tables
//   - NoSearchPartitions bool: do not try different numbers of partitions during the training
//   - CombineRows string: how virtual workers' gradients of a table row are combined, "loss", "add"
//     or "average"; empty: loss
//   - NoLocalAggregation bool: the workers of a host do not add up their gradients before sending
//   - NoFindSparse bool: variables of which the model only looks up rows do not become tables
//   - Balance string: how tables are distributed over servers, by "load" or by "bytes"; empty: load
//   - NoPrefetch bool: do not request the embedding rows of the next step in advance
//   - TuneAfterSteps int: number of steps before the autotuner's first decision; 0: 10
//   - Report int: number of steps after which the chief reports the network traffic; 0: 50
//   - SummaryDir string: folder for TensorBoard event files and JSON lines; empty: none are written
//   - SummaryEverySteps int: number of steps between two summaries; 0: 100
//   - ExportGraph string: file for the model's graph, as DOT or JSON; empty: none is written
//   - ProfileSteps string: steps for which a timeline is written, such as "5,10:12"; empty: none
//   - ProfileWorkers string: workers that write a timeline, such as "0,4:8"; empty: all
//   - ProfileDir string: folder for timelines; empty: the task's own folder
//   - CheckpointEverySteps int: number of steps between two checkpoints; 0: no checkpoints by steps
//   - CheckpointEverySecs int: seconds between two checkpoints; 0: 600, or no checkpoints by time if
//     CheckpointEverySteps is set
type Config = config.Config

// Ending says what a worker does if its data ends before that of other
// workers. It is the type of Config.AtEndOfData.
type Ending = config.Ending

// The values of Config.AtEndOfData say what happens if a worker's program
// returns before the others. With WaitForAll that is an error, because all
// workers must take the same number of steps. With JoinOthers the worker takes
// part in the other workers' steps without data. With EndTogether all workers
// stop. See package [config].
const WaitForAll, JoinOthers, EndTogether = config.WaitForAll, config.JoinOthers, config.EndTogether
