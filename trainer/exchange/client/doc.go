// Package client implements the worker's side of the exchange, see package
// exchange. A [Client] takes training steps with all shard holders, the tasks
// that hold parts of the variables. Its fields do more:
//
//   - [Rows] requests rows of sparse variables.
//   - [Placement] moves sparse variables to other holders, and reports traffic.
//   - [Saves] makes the holders save checkpoints.
//
// Internally, the type holders represents all shard holders. A link is a
// connection to one of them, and a local is a server in this process. A gate
// passes sums of gradients to the senders of the links, or holds them back
// until they may be sent.
package client
