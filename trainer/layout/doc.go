// Package layout describes what is trained, and which task holds which part of
// the variables. It defines the [Declaration], which must be equal on all
// workers of a job, and computes everything that follows from it. The package
// is pure: it uses no network and stores no values.
//
// A [Declaration] lists the variables and the [Piece]s into which they are
// divided. A shard holder is a task that holds pieces: a parameter server, or
// a worker. [Declaration.Place] chooses the holders for an architecture. The
// architectures ps, allreduce and hybrid differ only in this choice.
//
//	d := layout.Declaration{VirtualWorkers: 8, Workers: ranges, Variables: variables, ...}
//	err := d.Place(policy.Hybrid, servers, 0) // fills Holders and Pieces
//	err = d.Check()
//
// # Same bits
//
// The gradients of the virtual workers are added in the order of a [Tree],
// which depends only on their number. A worker adds the gradients of the
// largest whole subtrees that it has, its parts, and sends these sums. Shard
// holders add the remaining vertices. A [Plan] lists the additions that lead
// from some vertices to others, and a [Reduction] performs them. A [Roster]
// lists which worker sends which parts to a holder.
//
// # What it refuses
//
// [Declaration.Check] returns an error for combinations of settings that
// cannot work. [Declaration.Difference] describes the first difference between
// the declarations of two workers.
package layout
