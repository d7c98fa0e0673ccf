// Package embedding brings the rows of embedding tables that a worker's step
// needs to its replicas, and their gradients back.
//
//	t := embedding.New(tables, exchange, true)
//	err := t.Fetch(ctx, first, feed, vws)          // the rows of a step, each once
//	... t.RequestNext(): rows of the step after, while this one is computed
//	t.Load(replica, vw)                            // gives lookups their rows
//	index, sums := t.Gradient(replica, table, vw)  // duplicates added
//
// A prefetch request, see [Tables.Prefetch], names the rows of a step to come.
// They are requested while the step before it is computed.
//
// # What it refuses
//
// It holds no rows between steps: shard holders do. It updates none.
package embedding
