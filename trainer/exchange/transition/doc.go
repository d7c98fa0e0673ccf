// Package transition is what happens between two steps on all shard holders,
// with a number: variables move to other holders, a checkpoint is saved, the
// training goes on without a lost worker.
//
// The workers agree on a [Transition] by what they send, see package server. A
// holder then runs it on its shards. [Repartition] brings rows to their new
// holders over connections of its own and returns the shards that take the
// place of the old ones; [Save] hands on a copy; [Loss] completes the last step
// that a lost worker counts in.
//
//	m := transition.NewRepartition(training, config, host, epoch, workers)
//	err := m.Want(rank, wanted, declaration) // for every worker; all must want the same
//	next, err := m.Run(ctx, shards)
//
// [RestoreAll] fills shards from a checkpoint before the first step.
package transition
