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
// Rows of a sparse variable stay with their owners. [Client.ContributeRows]
// pushes gradients of rows; rows that nobody touched are left as they are, bit
// by bit. [Client.Rows] pulls rows as they are at the moment. Where workers are
// in step, [Client.Want] asks for all rows of a step, in one request per owner
// and while the step before is still under way, and [Client.Await] has them:
//
//	err := c.Begin(rate)
//	err = c.Want(wanted) // for the step after this one
//	// ... contribute, and Finish
//	err = c.Await(ctx)   // the rows, with the values after this step
//
// An owner remembers which rows anybody wanted for the step under way. The
// others will hardly change, and leave at once; the rest follows when the step
// is over, and with it those of the first that the step changed after all. So
// values are exact, and next to nothing is sent twice.
//
// [Client.Volumes] says what that cost: bytes and rows by variable and owner.
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
// the host bring for servers, sends one contribution, and passes the new
// values on. It asks for the union of the rows that they want, when each of
// them has wanted some or has begun the step without. Client.Rows still goes
// to the servers. What workers own travels directly from every worker to every
// other, in the same step; a variable belongs to one kind of owner.
//
// # Moving variables
//
// Where a Declaration is Movable, [Client.Repartition] cuts sparse variables
// anew and gives the pieces to other owners, between two steps and without a
// new start. Every worker tells every owner the same map; once an owner has
// heard it from all of them it brings rows straight to where they belong, with
// what the optimiser keeps for them, and no bit of the training changes. Rows
// that were never updated do not travel: their values follow from the seed.
// Frames carry the epoch of the map they were made for. An owner may own
// nothing for a while, and is neither told of steps nor waited for meanwhile.
// [Client.Room] asks first whether everything would fit in memory.
//
// # Overlap
//
// Variables are fused into buckets in the reverse of their order. A bucket is
// sent as soon as its last gradient is contributed, all frames for an owner
// at once, while others are still being computed; values come back the same
// way. Spans on the tracks send, receive and wait show it.
//
// # Checkpoints
//
// Between two steps the chief calls [Client.Save]. It tells every owner of
// pieces on the connection on which it will begin the next step, and the owner
// copies them before it reads on: values, what the optimiser keeps, how many
// updates there were. That copy is all that the training is held for. Where
// workers are in step nobody can finish the next step without the chief, so
// all copies are of the same moment. Elsewhere [Client.Cut] comes first: owners
// say how many steps of each group they have, and apply nothing behind the most
// of them until they have copied what lies before; with [Client.Conclude] the
// chief waits until it is alone, so that the last cut has everything. A
// [Snapshot] goes to ServerConfig.Save or ClientConfig.Save, which writes it
// where it likes, behind the training. Outcome.Saved of the next step tells
// every worker, for what it carries itself.
//
// A Declaration that names a Checkpoint goes on from there with step First, or
// each group with its own of a Cut; who is too far ahead there waits in
// [Client.Resume]. Every owner fills its pieces through its Restore, which puts
// all parts that overlap them, in any order: other servers, workers, hosts,
// partitions and architectures make no difference to the bits. Workers then get
// values as at any start. The loss is not saved; it follows from the next step.
//
//	func restore(ctx context.Context, d *owner.Declaration, p owner.Piece, into owner.Restoring) error {
//		for _, part := range overlapping(p) {
//			if err := into.Put(part); err != nil { // an owner.Kept
//				return err
//			}
//		}
//		return nil // what did not come is then an error
//	}
//
// # Faults
//
// Within a bounded time every waiting task hears which peer died, went silent
// or broke the protocol, as a [peers.PeerError]; a task that gives up tells
// the others why, and they pass on the cause and not its consequence. A task
// that cannot restore its pieces, or not within the time to start, says so.
//
// Where [Sync.BearsLoss], and once all are ready, a worker other than the chief
// that is lost in any of these ways ends nothing: every server logs it and
// takes it for one that has left, and the other workers notice nothing. What it
// sends is checked before it changes anything, so that holds for one that breaks
// the protocol too. Gradients of which not all bytes came count as absent;
// pieces that have its last gradient keep it. In Backup mode the first owner says
// up to which step the lost one counts, and the workers pass that on to the other
// owners: a step that had accepted it is made without what is missing, divided by
// the leaves that are in, piece by piece, and the servers log that. It does not
// come back. The loss of more workers than may be late, of the chief, or of an
// owner, ends the training.
//
// # What it refuses
//
// Workers that disagree on what they train, from which checkpoint, at which
// rate or on which arithmetic, or want other owners than the others do; frames
// that were not declared, or for another map; combinations that cannot work,
// with the reason ([Declaration.Check]). A door has one training; to train
// again, start again.
package owner
