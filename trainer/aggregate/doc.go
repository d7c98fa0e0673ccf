// Package aggregate is the state of the shards that a task holds: it puts the
// gradients of a step together as the synchronisation mode says, applies the
// optimiser, and keeps the values. It knows no network and no files.
//
// [Shards] are all pieces of variables that one task holds. A contributor is a
// worker, or the first worker of a host if that worker adds for its host. Each
// contributor begins a step and brings sums of gradients. After all sums of the
// step have arrived for a [Shard], the optimiser updates it. Each contributor
// whose gradients count then gets an [Event]:
//
//	shards, err := aggregate.New(&declaration, self, host) // host is told the events
//	err = shards.Begin(rank, step, aggregate.Beginning{Rate: 0.1, Present: present})
//	present, err := shard.Receive(group, input, length, read)
//	shards.Arrive(group, i, input, present) // may tell Updated
//
// A sum is added along the tree of package layout, so it has the same bits
// whoever comes first. [Own] adds in the same way what the virtual workers of
// one worker compute, and [Outbox] collects sums until a bucket is full.
//
// # Alignment
//
// If workers are not in step a checkpoint is a consistent cut. [Shards.Freeze],
// [Shards.Agree] and [Shards.Copy] hold back steps after the cut until those
// before it are copied.
package aggregate
