// Package client is the worker's side of the exchange, see package exchange. A
// [Client] takes steps with all shard holders. Its parts do the rest:
//
//   - [Rows] requests rows of sparse variables.
//   - [Placement] moves sparse variables to other holders, and reports traffic.
//   - [Saves] makes the holders save checkpoints.
//
// Internally, the type holders represents all shard holders. A link is a
// connection to one of them; a local is a server in this process. A gate passes
// sums to the senders of links, or holds them until they may be sent.
package client
