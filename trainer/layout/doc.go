// Package layout describes the variables of a training, and which task holds
// which part of them. It defines the [Declaration], which must be equal on all
// workers of a job, and computes everything that follows from it. The package
// is pure: it uses no network and stores no values.
//
// A [Declaration] lists the variables and the [Piece]s into which they are
// divided. A shard holder is a task that holds pieces: a parameter server, or
// a worker. [Declaration.AssignPieces] chooses the holders for an architecture. The
// architectures ps, allreduce and hybrid differ only in this choice.
//
//	d := layout.Declaration{VirtualWorkers: 8, Workers: ranges, Variables: variables, ...}
//	err := d.AssignPieces(policy.Hybrid, servers, 0) // fills Holders and Pieces
//	err = d.Check()
//
// # Same bits
//
// The gradients of the virtual workers are added in the order of a [Tree],
// which depends only on the number of virtual workers. A worker adds the
// gradients of its parts: the largest subtrees whose leaves are all its own
// virtual workers. It sends the sum of each part. The shard holders perform
// the remaining additions of the tree. A [Plan] lists the additions that lead
// from some vertices to others, and a [Reduction] performs them. A [Roster]
// lists which worker sends which parts to a holder.
//
// # What it refuses
//
// [Declaration.Check] returns an error for combinations of settings that
// cannot work. [Declaration.Difference] describes the first difference between
// the declarations of two workers.
package layout
