package trainer

import "github.com/plx-run/plx/trainer/config"

// Config is how a job trains; package [config] documents each field. It is for [Main]
// and for [Job.Parallelize], which adds what the program only knows later:
//
//	trainer.Main(train, trainer.Config{Sync: "ssp:4", CheckpointEverySteps: 1000})
//	...
//	session, err := job.Parallelize(ctx, build, optimizer, trainer.Config{GlobalBatch: 8 * job.NumShards()})
//
// Zero means a field's default. Each flag of the trainer has a field and wins over it.
type Config = config.Config

// Ending is what a worker does whose data ends before that of others, see
// Config.AtEndOfData.
type Ending = config.Ending

// A worker whose program returns first makes the others wait, joins their steps without
// data, or ends them all; package [config] says how.
const WaitForAll, JoinOthers, EndTogether = config.WaitForAll, config.JoinOthers, config.EndTogether
