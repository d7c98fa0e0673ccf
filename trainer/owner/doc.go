// Package owner keeps the variables of a training with their owners and
// carries gradients to them and values back: the data plane of the trainer.
//
// An owner is a task that holds the authoritative value of pieces of
// variables and the optimiser's state for them: a server, or a worker. Every
// step it takes the gradients of all leaves, adds them in the fixed order of
// a [Tree], applies the optimiser and sends the new values back. Workers
// declare who owns what; where all pieces are on servers that is the
// architecture ps, where they are on workers it is an all-reduce, and where a
// single worker owns everything it trains alone. It is one protocol.
//
//	d := owner.Declaration{Leaves: 8, Workers: ranges, Variables: variables, Optimizer: settings, ...}
//	err := d.Place(owner.Hybrid, servers, 0) // fills Owners and Pieces
//
//	// in a ps task, until every worker said goodbye or it is told that it owns nothing
//	err := owner.Serve(ctx, owner.ServerConfig{Peers: config, Door: door})
//
//	// in a worker
//	c, err := owner.Connect(ctx, owner.ClientConfig{Peers: config, Door: door, Cluster: spec,
//		Declaration: d, Values: values})
//	for ... {
//		err := c.Begin(rate)
//		// per leaf, on a goroutine of its own, in the order in which gradients are computed:
//		fill(c.Gradient(leaf, variable))
//		c.Contribute(leaf, variable) // from here on the variable may change
//		// when all leaves are through:
//		outcome, err := c.Finish(ctx, sums) // values are updated
//	}
//	err = c.Close()
//
// # Same bits
//
// A worker adds the gradients of its leaves as far as the tree allows and
// sends the sums of the maximal whole subtrees, the parts; owners complete
// the tree. A part or leaf without data is absent: it is skipped, not added
// as zero. So the sum has the same bits for any number of workers up to the
// number of leaves, any ranges, any placement. Norms are added over fixed
// blocks in a fixed order, and optimisers work element by element.
//
// # Sparse variables
//
// Rows of a sparse variable stay with their owners. [Client.Rows] pulls the
// ones that a leaf needs, [Client.ContributeRows] pushes gradients of rows;
// rows that nobody touched are left as they are, bit by bit.
//
// # Synchronisation
//
// Workers are cut in groups whose gradients are added; a step of a group is
// applied at once when it is complete, and all of the group get the same
// values. [Synchronous]: one group. [Grouped]: as many as asked for.
// [Asynchronous]: every worker is one. [Bounded] likewise, but a worker that
// is Number steps ahead of another is answered only when that one has moved,
// with the values of that moment; every worker begins every step on every
// server, also when it has nothing for it, so clocks advance. [Backup]: the
// first owner decides whose gradients of a step count, the first that have
// them; a late worker learns it at Finish, gets the current values and goes on
// with the current step. All but the first need servers as owners.
//
// Where all gradients of a step are added up every worker must take as many
// steps; one whose data has ended goes on without, see [Client.Join].
//
// # Local aggregation
//
// With Declaration.Hosts the first worker of a host adds what the others of
// the host bring, sends one contribution, and passes the new values on. Rows
// are still pulled from the servers by everybody.
//
// # Overlap
//
// Variables are fused into buckets in the reverse of their order. A bucket is
// sent as soon as its last gradient is contributed, all frames for an owner
// at once, while others are still being computed; values come back the same
// way. Spans on the tracks send, receive and wait show it.
//
// # Faults
//
// Within a bounded time every waiting task hears which peer died, went silent
// or broke the protocol, as a [peers.PeerError]; a task that gives up tells
// the others why, and they pass on the cause and not its consequence.
//
// # What it refuses
//
// Workers that disagree on what they train, at which rate or on which
// arithmetic; frames that were not declared; combinations that cannot work,
// with the reason ([Declaration.Check]). A door has one training; to train
// again, start again.
package owner
