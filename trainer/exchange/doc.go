// Package exchange is the data plane of the trainer: it carries the gradients
// of a step from workers to shard holders and the new values back.
//
// A shard holder is a task that holds pieces of variables and what the
// optimiser keeps for them: a parameter server, or a worker. Package layout
// says who holds what, package policy how far workers wait for each other, and
// package aggregate keeps the shards. If all pieces are on servers the protocol
// is that of parameter servers; if they are on workers it is an all-reduce.
//
// The packages below it are:
//
//   - client: the worker's side.
//   - server: the shard holder's side.
//   - relay: local aggregation, the sums of one host.
//   - message: payloads of frames, and limits that both sides keep to.
//   - transition: what happens between two steps.
//
// This page describes the protocol. An example:
//
//	d := layout.Declaration{VirtualWorkers: 8, Workers: ranges, Variables: variables, Optimizer: settings, ...}
//	err := d.Place(policy.Hybrid, servers, 0) // fills Holders and Pieces
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
//		// when all virtual workers are through:
//		outcome, err := c.Finish(ctx, sums) // values are updated
//	}
//	err = c.Close()
//
// # Same bits
//
// A worker adds the gradients of its virtual workers as far as the tree of
// package layout allows and sends the sums of whole subtrees, its parts. Shard
// holders complete the tree. A part or virtual worker without data is absent:
// it is skipped, not added as zero. So the sum has the same bits for any number
// of workers, any ranges and any placement.
//
// # Sparse variables
//
// Rows of a sparse variable stay with their holders. [client.Client.ContributeRows]
// pushes gradients of rows; rows that nobody touched stay as they are.
// [client.Rows.Pull] gets rows as they are at the moment. If workers are in step,
// [client.Rows.Prefetch] requests all rows of a step, in one request per holder
// and while the step before is still under way, and [client.Rows.Await] returns
// when they are there:
//
//	err := c.Begin(rate)
//	err = c.Rows.Prefetch(wanted) // for the step after this one
//	// ... contribute, and Finish
//	err = c.Rows.Await(ctx)        // the rows, with the values after this step
//
// A holder remembers which rows anybody asked for, for the step under way. It
// sends the others at once, in an early reply. The final reply follows after
// the step, with the rest and with rows of the early reply that the step changed
// after all.
//
// [client.Placement.Volumes] reports bytes and rows by variable and holder.
//
// # Local aggregation
//
// With Declaration.Hosts the first worker of a host adds what the others of the
// host bring for servers, sends one contribution, and passes the new values on.
// It asks servers for the union of the rows that they want. What workers hold
// travels directly from every worker to every other, in the same step.
//
// # Between two steps
//
// Package transition describes what shard holders do then.
// [client.Placement.Repartition] gives sparse variables to other holders;
// [client.Placement.Room] asks first whether everything fits in memory. [client.Saves.Save]
// makes every holder copy its shards and hand the copy to its Checkpoints. If a checkpoint is a consistent cut, [client.Saves.Cut] comes
// first; with [client.Saves.Conclude] the chief waits until it is alone, so that the
// last checkpoint has everything. Outcome.Saved of the next step tells workers
// in step that there was a save.
//
// A Declaration that names a Checkpoint begins with step First, or each group
// with its own step of Cut. Every holder fills its shards from its Checkpoints.
// A worker that is too far ahead waits in [client.Client.Resume].
//
// # Overlap
//
// Dense variables are fused into buckets in the reverse of their order. A bucket
// is sent as soon as its last gradient is contributed, while other gradients are
// being computed; values come back in the same way. Spans on the tracks send,
// receive and wait show it.
//
// # Faults
//
// Within a bounded time every waiting task hears which peer died, went silent or
// broke the protocol, as a [peers.PeerError]. A task that gives up tells the
// others why, and they pass on the cause.
//
// If the synchronisation mode tolerates the loss of a worker, and all workers
// were ready, the loss of one other than the chief ends nothing. Every server
// logs it and treats the worker as one that has left. A gradient of which not all
// bytes came counts as absent. If workers compete, the first holder says up to
// which step the lost worker counts, and the workers pass that on to the other
// holders. The loss of the chief or of a shard holder ends the training.
//
// # What it refuses
//
// Workers that disagree on what they train, from which checkpoint, at which rate
// or on which arithmetic; frames that were not declared, or for another map;
// combinations that cannot work, with the reason. A listener has one training:
// to train again, start again.
package exchange
