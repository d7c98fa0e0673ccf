// Package client is the worker's side of the exchange, see package exchange. A
// [Client] takes steps with all shard holders. Its parts do the rest:
//
//   - [Rows] gets rows of sparse variables.
//   - [Placement] gives sparse variables to other holders, and counts what
//     travels.
//   - [Saves] makes the holders save checkpoints.
//
// Inside, holders are the shard holders as the worker reaches them: a link is a
// connection to one of them, and a local is a server in this process. A gate
// leads what is to be sent to the links.
package client
