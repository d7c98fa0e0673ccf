package trainer

import "github.com/plx-run/plx/trainer/config"

// Config is how a job trains. It is for [Main] and for [Job.Parallelize], which adds what
// the program only knows later:
//
//	trainer.Main(train, trainer.Config{Sync: "ssp:4", CheckpointEverySteps: 1000})
//	...
//	session, err := job.Parallelize(ctx, build, optimizer, trainer.Config{GlobalBatch: 8 * job.NumShards()})
//
// Zero means a field's default. Each flag of the trainer has a field and wins over it.
// [config.Config] says more of each field, and names its flag.
//
// These have no flags. Each program must set GlobalBatch or ShardBatch:
//
//   - GlobalBatch int: rows that all workers together take in a step
//   - ShardBatch int: rows that each virtual worker takes in a step, in place of GlobalBatch
//   - ClipNorm float64: largest global norm of a step's gradient; 0: gradients are not clipped
//   - MeasureNorm bool: each step reports the gradient's global norm, see [Result]
//   - AtEndOfData Ending: what the others do when the data of one worker ends; 0: [WaitForAll]
//   - Hooks []Hook: functions that are called at moments of the training, see [Hook]
//   - StartTimeout time.Duration: how long Parallelize waits for the other tasks; 0: 2 minutes
//   - PeerTimeout time.Duration: how long another task may be silent; 0: 30 seconds
//
// Main reads these before it runs the program, and Parallelize refuses to change them:
//
//   - Seed uint64: what first values, shuffling and dropout follow from
//   - VirtualWorkers int: equal parts of each batch, for the same bits on any number of workers;
//     0: one for each replica and accumulated batch
//   - Replicas int: replicas that a worker drives; 0: 1
//   - Accumulate int: batches whose gradients a replica adds in a step; 0: 1
//   - Device string: "cpu", "gpu" or "auto"; empty: auto
//   - CheckpointDir string: folder on every host for checkpoints; empty: there are none
//   - CheckpointKeep int: checkpoints that are kept; 0: 3
//
// Parallelize, or Main, may set the rest:
//
//   - Arch string: which tasks hold variables, "ps", "allreduce", "hybrid" or "auto"; empty:
//     hybrid, or ps if Sync needs it
//   - Sync string: "sync", "async", "ssp:K", "group:G" or "backup:B"; empty: sync
//   - ParallelReplicas int: replicas that a worker computes side by side; 0: as the cores allow
//   - InitFrom string: checkpoint or safetensors file on the chief's host that variables of the
//     same name, type and shape begin with; empty: none
//   - Digest bool: the chief prints a hash of all variables at the end
//   - StopAtStep int: steps after which training ends; 0: the program ends it
//   - CheckParameters int: steps between two comparisons of all workers' variables; 0: none
//   - CheckNumerics bool: look for NaN and Inf in every gradient, not only in the loss
//   - BucketBytes int: size of gradients that travel together in an all-reduce; 0: 1 MiB
//   - PartitionBytes int: size above which a variable is cut over servers; 0: 4 MiB
//   - Partitions int: partitions of tables that have a partitioner; 0: the autotuner finds it
//   - MinPartitions int: smallest number of partitions; 0: what the partitioner says
//   - MaxPartitions int: largest number that is tried; 0: 16 for each task that holds tables
//   - NoSearchPartitions bool: try no other numbers of partitions while training goes on
//   - CombineRows string: how gradients of a table's rows are put together, "loss", "add" or
//     "average"; empty: loss
//   - NoLocalAggregation bool: workers of a host do not add their gradients before they send them
//   - NoFindSparse bool: variables of which the model only looks up rows do not become tables
//   - Balance string: what tables are placed by, "load" or "bytes"; empty: load
//   - NoPrefetch bool: do not request rows of embeddings a step ahead
//   - FirstMeeting int: steps before the autotuner's first decision; 0: 10
//   - Report int: steps before the chief reports what was sent; 0: 50
//   - SummaryDir string: folder for TensorBoard event files and JSON lines; empty: none
//   - SummaryEverySteps int: steps from one summary to the next; 0: 100
//   - ExportGraph string: file for the model's graph, DOT or JSON; empty: none
//   - ProfileSteps string: steps of the timeline, such as "5,10:12"; empty: no timeline
//   - ProfileWorkers string: workers that write a timeline, such as "0,4:8"; empty: all
//   - ProfileDir string: folder for timelines; empty: the task's own folder
//   - CheckpointEverySteps int: steps from one checkpoint to the next; 0: steps do not count
//   - CheckpointEverySecs int: seconds from one checkpoint to the next; 0: 600, or none if
//     CheckpointEverySteps is set
type Config = config.Config

// Ending is what a worker does whose data ends before that of others, see
// Config.AtEndOfData.
type Ending = config.Ending

// A worker whose program returns first makes the others wait, joins their steps without
// data, or ends them all; package [config] says how.
const WaitForAll, JoinOthers, EndTogether = config.WaitForAll, config.JoinOthers, config.EndTogether
