// Package message encodes and decodes the payloads of the frames that workers
// and shard holders (tasks that store variables) exchange. Values of dense
// variables need no encoding, and package wire encodes the headers of frames.
// The package opens no connection and keeps no state.
//
// A worker opens a connection to every shard holder and first sends its
// layout.Declaration as JSON, at most MaxDeclaration bytes. All other payloads
// are little-endian. By kind of frame, they contain:
//
//	step    learning rate f64, then for each range of virtual workers whose gradients the worker
//	        sends as one sum: how many of them have data u32
//	done    number of virtual workers with data u64, norm f64, updates u64,
//	        u8 1 if the chief saved before this step, else 0
//	norm    for each range of a variable that has a gradient, in the order of the
//	        declaration: number n of sums of squares u64, then n times f64
//	scale   norm f64, factor f64
//	cut     the steps that a checkpoint contains: for each group of workers, their number u64
//	save    empty, or as cut
//	room    (reply) needed bytes u64, free bytes u64
//	want    prefetch request for rows of several pieces, see Rows
//	early   the rows of a reply that are sent before the step ends, see Reply
//	final   the other rows of the reply
package message

import "time"

// The purposes of connections, which the dialling worker sends. They are part
// of the wire protocol.
const (
	ToHolder = "owner" // from a worker to a shard holder (a task that stores variables)
	ToFirst  = "local" // from a worker to the first worker of its host, which combines the traffic of all workers there
)

const (
	// MaxDeclaration is the largest size of a declaration's JSON, in bytes.
	MaxDeclaration = 16 << 20
	// Farewell is the longest time to wait until a peer closes its connection.
	Farewell = 2 * time.Second
)

// Direct is a value of the field Part in the last reply to a request for rows.
// The first worker of a host requests rows for the other workers there. With
// Direct it tells one of them to request its rows from the shard holders
// itself.
const Direct = 1

// CutKinds is the number of constants of the type client.CutKind, which says
// how workers continue after a checkpoint.
const CutKinds = 2
