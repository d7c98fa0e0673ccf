// Package exchange is the data plane of the trainer. It carries the gradients of
// a step from workers to shard holders, and the new values back.
//
// A shard holder is a task that holds pieces of variables and their optimiser
// state: a parameter server, or a worker. If servers hold all pieces, the
// protocol is that of parameter servers. If workers hold them, it is an
// all-reduce. Package layout assigns pieces to holders, package policy decides
// how workers wait for each other, and package aggregate keeps the shards.
//
// The packages below it are:
//
//   - client: the worker's side.
//   - server: the shard holder's side.
//   - localsum: local aggregation, which adds the gradients of the workers of one host.
//   - message: the payloads of frames, and limits for both sides.
//   - transition: moves and saves between two steps.
//
// # Terms
//
// A piece is a range of a variable. A shard is a piece together with its
// optimiser state, on its holder. A map says which holder has which piece; its
// epoch is its version number.
//
// A virtual worker computes the gradients of a share of the data. Every worker
// has a range of virtual workers. The worker with rank 0 is the chief.
//
// Workers are in step if all of them take every step together: mode sync. A
// group is a set of workers whose gradients are added. Workers compete if only
// the first gradients of a step count: mode backup. The first holder, the first
// of Declaration.Holders, then decides which gradients count.
//
// # Example
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
// package layout allows. It sends the sums of whole subtrees, its parts. Shard
// holders complete the tree. They skip a part or virtual worker without data;
// they do not add it as zero. So the sum has the same bits for any number of
// workers, any ranges and any placement.
//
// # Sparse variables
//
// Rows of a sparse variable stay with their holders.
// [client.Client.ContributeRows] sends gradients of rows; a step changes no
// other rows. [client.Rows.Pull] gets the current values of rows. If workers
// are in step, [client.Rows.Prefetch] requests all rows of the next step during
// the current one, in one request per holder. [client.Rows.Await] returns after
// they have arrived:
//
//	err := c.Begin(rate)
//	err = c.Rows.Prefetch(requests) // for the step after this one
//	// ... contribute, and Finish
//	err = c.Rows.Await(ctx)        // the rows, with the values after this step
//
// A holder records which rows any worker requested for the current step,
// because the step will change hardly any others. It sends those others at
// once, in an early reply. After the step it sends the final reply: the
// remaining rows, and rows of the early reply that the step changed after all.
//
// [client.Placement.Volumes] reports bytes and rows by variable and holder.
//
// # Local aggregation
//
// With Declaration.Hosts, the first worker of a host deals with the servers on
// behalf of the whole host. It adds the gradients of the host's workers, sends
// one contribution, and passes the new values on. It requests each row once for
// all of them. Pieces on workers bypass local aggregation: in the same step,
// every worker sends their gradients to their holder directly.
//
// # Between two steps
//
// Package transition implements the operations of shard holders between two
// steps. [client.Placement.Repartition] moves sparse variables to other
// holders. [client.Placement.Room] first checks that their memory suffices.
//
// [client.Saves.Save] makes every holder copy its shards and pass the copy to
// its Checkpoints. If workers are in step, Outcome.Saved of the next step
// reports the save to all of them. In other modes a checkpoint is a consistent
// cut: for each group, exactly the steps before one step. The chief then calls
// [client.Saves.Cut] before Save. After its last step, [client.Saves.Conclude]
// waits until all other workers have left, so that the last checkpoint has all
// their steps.
//
// A Declaration that names a Checkpoint begins with step First, or in each
// group with the group's step of Declaration.Cut. Every holder fills its shards
// from its Checkpoints. A worker that is further ahead than its mode allows
// waits in [client.Client.Resume].
//
// # Overlap
//
// Dense variables are grouped into buckets, in the reverse of their order. The
// client sends a bucket as soon as its last gradient is contributed, while
// virtual workers still compute other gradients. Holders send new values in the
// same way. Spans on the tracks send, receive and wait show this in a trace.
//
// # Faults
//
// Every waiting task learns within a bounded time which peer died, went silent
// or violated the protocol, as a [peers.PeerError]. A task that gives up tells
// the other tasks why, and they report the same cause.
//
// Some synchronisation modes tolerate the loss of a worker other than the
// chief, after all workers were ready. Every server then logs the loss and
// treats the worker like one that has left. A gradient that arrived only in
// part counts as absent. If workers compete, the first holder announces the
// first step in which the lost worker does not count. The workers forward this
// to the other holders. The loss of the chief or of a shard holder ends the
// training.
//
// # What it refuses
//
// Package exchange refuses workers whose declarations differ, for example in
// the model, the checkpoint or the arithmetic. It refuses different learning
// rates in a step, frames that do not fit the declaration, and frames of
// another epoch. It refuses combinations that cannot work, with the reason. A
// listener serves one training; another training needs another listener.
package exchange
