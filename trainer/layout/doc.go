// Package layout says what is trained and who holds which part of it: the
// declaration that all workers of a job agree on, and all that follows from it
// alone. It is pure: it knows no network and holds no values.
//
// A [Declaration] lists the variables and the [Piece]s that they are cut into.
// A shard holder is a task that holds pieces: a parameter server, or a worker.
// [Declaration.Place] chooses the holders for an [Architecture]; what tells ps,
// allreduce and hybrid apart is that choice and nothing else.
//
//	d := layout.Declaration{VirtualWorkers: 8, Workers: ranges, Variables: variables, ...}
//	err := d.Place(policy.Hybrid, servers, 0) // fills Holders and Pieces
//	err = d.Check()
//
// # Same bits
//
// The gradients of the virtual workers are added along a [Tree], which depends
// on their number alone. A worker adds as far as it can and sends the sums of
// the maximal whole subtrees, its parts; holders complete the tree. A [Plan]
// says how sums of some vertices grow to those of others, a [Reduction] carries
// it out, and a [Roster] lists who brings which parts to a holder.
//
// # What it refuses
//
// [Declaration.Check] refuses combinations that cannot work, with the reason.
// [Declaration.Difference] names the first point in which two workers disagree.
package layout
