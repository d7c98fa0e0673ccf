// Package mesh lets the workers of a job compute together: broadcast, scatter,
// gather, all-gather, reduce-scatter, all-reduce and barrier over slices of
// float32, float64 and int64.
//
//	m := mesh.New(mesh.Config{Peers: config, Door: door, Rank: rank, Addrs: addrs})
//	defer m.Close()
//	err := mesh.AllReduce(ctx, m, gradient) // the sum over all workers, in place
//
// Every worker calls the same collectives in the same order with matching
// arguments, one at a time; whatever the worker, a collective returns after
// all have called it. The first one joins each pair of workers by a connection
// of package peers. With one worker there is no network.
//
// # Same bits
//
// Sums follow one fixed binary tree over the ranks: the sum of the half-open
// range [lo, hi) is that of [lo, mid) plus that of [mid, hi), mid = lo +
// (hi-lo)/2. They are the same bits on every rank, in every run, whatever the
// length of the slice, and do not depend on who comes first.
//
// # How much memory
//
// Slices travel in chunks, from and to the caller's memory; a sum needs a few
// chunks per peer besides. A worker sends what another did not ask for yet only
// where that has room for it, so that one slow worker does not fill the others.
//
// # What it refuses
//
// Collectives that differ in kind, order, type, length or root: all workers
// get an error that names two of them and what each called. After any error,
// the end of a context included, the mesh is broken and every later call says
// why; the others are told, and whoever dies or freezes is named to all within
// the silence that Config tolerates.
package mesh
