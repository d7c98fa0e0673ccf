// Package collective implements collective operations among the workers of a
// job: broadcast, scatter, gather, all-gather, reduce-scatter, all-reduce and
// barrier, on slices of float32, float64 and int64.
//
//	g := collective.New(collective.Config{Peers: config, Listener: listener, Rank: rank, Addrs: addrs})
//	defer g.Close()
//	err := collective.AllReduce(ctx, g, gradient) // the sum over all workers, in place
//
// Every worker must call the same collectives in the same order with matching
// arguments, one at a time. On every worker, a collective returns only after
// all workers have called it. The first collective connects each pair of
// workers by a connection of package peers. A job with one worker uses no
// network.
//
// # How it works
//
// A collective consists of one or more exchanges. In an exchange, each worker
// sends every other worker an announcement: which collective it calls, and the
// first 64 KiB of its data. It sends the remaining data after the other worker
// has announced the same collective. So a receiver always has memory for the
// data that arrives. If a receiver is slow, TCP slows down the sender; no
// other flow control is needed. A goroutine that reads one connection never
// waits for another connection, so a slow connection does not delay error
// reports from other workers.
//
// # Same bits
//
// Sums follow one fixed binary tree over the ranks: the sum of the ranks [lo,
// hi) is the sum of [lo, mid) plus the sum of [mid, hi), with mid = lo +
// (hi-lo)/2. So a sum has the same bits on every rank and in every run,
// whatever the length of the slice and the order in which data arrives.
//
// # Memory use
//
// Data is sent from, and received into, the caller's slices. A sum is computed
// in blocks and needs at most 16 MiB of additional memory, and each connection
// needs 64 KiB. The size of an allocation never depends on a length received
// from the network, except in AllGatherBytes, whose caller sets a limit.
//
// # Errors
//
// If workers call collectives that differ in operation, order, type, length or
// root, all workers get an error that names two of them and the calls of both.
// After any error the group is broken: every later call returns the first
// error, and this worker reports the error to the other workers. The end of a
// context counts as an error too. If a worker dies or freezes, all other
// workers return an error that names that worker, after the time
// Config.Silence at the latest.
package collective
