// Package message encodes and decodes what travels between workers and shard
// holders, as far as it is neither numbers of a variable nor a plain header of
// package wire. It is pure: it opens no connection and holds no state.
//
// A worker opens a connection to every shard holder and sends its
// layout.Declaration as JSON, at most MaxDeclaration bytes. All other payloads
// are little-endian:
//
//	step    rate f64, then by part: virtual workers present u32
//	done    virtual workers present u64, norm f64, updates u64, saved before the step u8
//	norm    by shard that has a gradient, in the order of the declaration's
//	        pieces: number of sums u64, then that many f64
//	scale   norm f64, factor f64
//	cut     by group of workers: steps u64
//	save    nothing, or the cut
//	room    answer to a question for room: bytes needed u64, bytes free u64
//	want    rows that a worker requests of several pieces, see Rows
//	early   the part of the reply that is sent before the step ends, see Reply
//	final   the rest of the reply
package message

import "time"

// Purposes of connections. Their values travel, so they keep their old names.
const (
	ToHolder = "owner" // a worker comes to a shard holder
	ToFirst  = "local" // a worker comes to the first worker of its host
)

const (
	// MaxDeclaration bounds a declaration, in bytes of JSON.
	MaxDeclaration = 16 << 20
	// Farewell is how long a task waits for a peer to hang up.
	Farewell = 2 * time.Second
)

// Direct, as the part of the header of a final reply of the first worker of a
// host, tells the worker to request the rows from the shard holders itself.
const Direct = 1

// CutKinds is how many kinds of cuts a cut frame can ask for, see client.CutKind.
const CutKinds = 2
