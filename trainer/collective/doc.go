// Package collective lets the workers of a job compute together: broadcast,
// scatter, gather, all-gather, reduce-scatter, all-reduce and barrier over
// slices of float32, float64 and int64.
//
//	g := collective.New(collective.Config{Peers: config, Listener: listener, Rank: rank, Addrs: addrs})
//	defer g.Close()
//	err := collective.AllReduce(ctx, g, gradient) // the sum over all workers, in place
//
// Every worker calls the same collectives in the same order with matching
// arguments, one at a time. On every worker, a collective returns after all
// workers have called it. The first collective joins each pair of workers by a
// connection of package peers. With one worker there is no network.
//
// # How it works
//
// A collective is one or more exchanges. In an exchange, each worker announces
// to every other what it calls. The first 64 KiB of its data come with the
// announcement. It sends the rest once the other has announced the same. So a
// reader always has a place for what it reads: TCP slows down a sender that is
// faster than the network, and no other flow control is needed. The reader of a
// connection never waits for another connection, so reports of errors are never
// stuck behind data.
//
// # Same bits
//
// Sums follow one fixed binary tree over the ranks: the sum of the half-open
// range [lo, hi) is that of [lo, mid) plus that of [mid, hi), mid = lo +
// (hi-lo)/2. So they have the same bits on every rank and in every run,
// whatever the length of the slice and whoever comes first.
//
// # How much memory
//
// Slices travel from and to the caller's memory. A sum takes its slice in
// blocks and needs at most 16 MiB besides, and each connection 64 KiB. No length
// that comes from the network decides how much is allocated, but in
// AllGatherBytes, whose caller sets the limit.
//
// # What it refuses
//
// Collectives that differ in kind, order, type, length or root: all workers
// get an error that names two of them and what each called. After any error,
// the end of a context included, the group is broken and every later call
// returns the cause. The other workers hear of it. A worker that dies or
// freezes is named to all within the silence that Config tolerates.
package collective
