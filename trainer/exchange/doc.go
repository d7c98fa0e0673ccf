// Package exchange is the data plane of the trainer. It carries the gradients
// of a step from workers to shard holders, and the new values back.
//
// A shard holder is a task that holds pieces of variables and their optimiser
// state: a parameter server, or a worker. If servers hold all pieces, training
// uses parameter servers. If workers hold all pieces, it uses an all-reduce.
// Package layout assigns pieces to holders, package policy decides how workers
// wait for each other, and package aggregate keeps the shards.
//
// The packages in this folder are:
//
//   - client: the worker's side of the protocol.
//   - server: the shard holder's side of the protocol.
//   - localsum: local aggregation, which adds the gradients of the workers of one host.
//   - message: encodes the payloads of frames, and defines limits for both sides.
//   - transition: moves variables and saves checkpoints between two steps.
//
// # Terms
//
// A piece is a range of a variable. A shard is a piece together with its
// optimiser state, on its holder. The placement (or map) records which holder
// has which pieces. Its epoch is its version number.
//
// A virtual worker computes the gradients of a part of the data. Every worker
// has a range of virtual workers. The worker with rank 0 is the chief.
//
// In mode sync, all workers take every step together: they are in step. A
// group is a set of workers whose gradients are added together. In mode
// backup, workers compete: a step uses only the gradients that arrive first.
// The first holder (the first of Declaration.Holders) decides which gradients
// a step uses.
//
// # Example
//
//	d := layout.Declaration{VirtualWorkers: 8, Workers: ranges, Variables: variables, Optimizer: settings, ...}
//	err := d.AssignPieces(policy.Hybrid, servers, 0) // fills Holders and Pieces
//
//	// in a ps task, until every worker has said goodbye
//	err := server.Serve(ctx, server.Config{Peers: config, Listener: listener, Cluster: spec})
//
//	// in a worker
//	c, err := client.Connect(ctx, client.Config{Peers: config, Listener: listener, Cluster: spec,
//		Declaration: d, Values: values})
//	for ... {
//		err := c.Begin(rate)
//		// for each virtual worker, on a goroutine of its own, as gradients are computed:
//		fill(c.Gradient(virtualWorker, variable))
//		c.Contribute(virtualWorker, variable) // from here on the variable may change
//		// after all virtual workers have contributed:
//		outcome, err := c.Finish(ctx, sums) // values are updated
//	}
//	err = c.Close()
//
// # Same bits
//
// Gradients are added in the fixed order of a tree, see layout.Tree. A worker
// adds the gradients of its virtual workers. It sends the sums of its parts,
// which are the largest subtrees that contain only its virtual workers. Shard
// holders add the sums of the parts. They skip virtual workers without data,
// and do not add zero for them. So the sum has the same bits for any number of
// workers and any placement.
//
// # Sparse variables
//
// Rows of a sparse variable stay with their holders.
// [client.Client.ContributeRows] sends gradients of rows; a step changes no
// other rows. [client.Rows.Pull] gets the current values of rows. If workers
// are in step, [client.Rows.Prefetch] requests all rows of the next step
// during the current one, in one request per holder. [client.Rows.Await]
// returns after they have arrived:
//
//	err := c.Begin(rate)
//	err = c.Rows.Prefetch(requests) // for the step after this one
//	// ... contribute, and Finish
//	err = c.Rows.Await(ctx)        // the rows, with the values after this step
//
// A holder records which rows any worker requested for the current step,
// because the step will hardly change other rows. During the step it sends
// those other rows in an early reply. After the step it sends a final reply
// with the requested rows that were not in the early reply. The final reply
// also repeats the early rows that the step has changed.
//
// [client.Placement.Volumes] reports bytes and rows by variable and holder.
//
// # Local aggregation
//
// With Declaration.Hosts, the first worker of a host communicates with the
// servers on behalf of the whole host. It adds the gradients of the host's
// workers, sends the sum, and forwards the new values. It requests each row
// once for the whole host. Gradients of pieces that workers hold are not
// aggregated: every worker sends them to their holder directly.
//
// # Between two steps
//
// Package transition implements the operations of shard holders between two
// steps. [client.Placement.Repartition] moves sparse variables to other
// holders. [client.Placement.Room] checks before a move that these holders
// have enough memory.
//
// [client.Saves.Save] makes every holder copy its shards and pass the copy to
// its Checkpoints. In mode sync, Outcome.Saved of the next step reports the
// save to all workers. In other modes a checkpoint is a consistent cut: for
// each group of workers, it contains exactly the group's first n steps, with
// an n for each group. The chief then calls [client.Saves.Cut] before Save.
// After its last step, the chief calls [client.Saves.Conclude], which waits
// until all other workers have left. So the last checkpoint has all their
// steps.
//
// Training that resumes from Declaration.Checkpoint begins with step
// Declaration.First or, in each group of workers, with the group's element of
// Declaration.Cut. Every holder fills its shards from its Checkpoints. A
// worker that is further ahead of others than its mode allows waits in
// [client.Client.Resume].
//
// # Overlap
//
// The client groups dense variables into buckets, in reverse order of their
// declaration. It sends a bucket as soon as all gradients in the bucket are
// complete, while virtual workers still compute other gradients. Holders send
// each new value as soon as it is complete. In a trace, the tracks send,
// receive and wait show how communication and computation overlap.
//
// # Faults
//
// If a peer dies, hangs or violates the protocol, every task that waits for
// the peer fails within a bounded time. The error is a [peers.PeerError] that
// names the peer. A task that gives up sends the reason to the other tasks,
// and they report the same cause.
//
// Some synchronisation modes tolerate the loss of a worker other than the
// chief, after all workers were ready. Every server then logs the loss and
// treats the worker like a worker that has left. A gradient that arrived only
// in part is ignored. In mode backup, the first holder announces the first
// step without the lost worker, and the workers forward the announcement to
// the other holders. The loss of the chief or of a shard holder ends the
// training.
//
// # What it refuses
//
// Training fails with an error if the declarations of workers differ, for
// example in the model, the checkpoint or the arithmetic. It also fails if
// workers pass different learning rates to a step, or send frames that do not
// match the declaration or the epoch. Combinations of settings that cannot
// work are refused with the reason. A listener can serve only one training.
package exchange
