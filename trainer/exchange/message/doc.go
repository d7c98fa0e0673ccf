// Package message encodes and decodes the payloads that workers and shard
// holders exchange, except values of dense variables and the headers of package
// wire. It is pure: it opens no connection and knows no training.
//
// A worker opens a connection to every shard holder and sends its
// layout.Declaration as JSON, at most MaxDeclaration bytes. All other payloads
// are little-endian:
//
//	step    rate f64, then by part: virtual workers with data u32
//	done    virtual workers with data u64, norm f64, updates u64, saved before the step u8
//	norm    by shard that has a gradient, in the order of the declaration's
//	        pieces: number of sums of squares u64, then that many f64
//	scale   norm f64, factor f64
//	cut     by group of workers: number of steps u64
//	save    empty, or the payload of a cut
//	room    reply to a room frame: bytes needed u64, bytes free u64
//	want    prefetch request for rows of several pieces, see Rows
//	early   the part of the reply that is sent before the step ends, see Reply
//	final   the rest of the reply
package message

import "time"

// Purposes of connections. The values are part of the protocol.
const (
	ToHolder = "owner" // from a worker to a shard holder
	ToFirst  = "local" // from a worker to the first worker of its host
)

const (
	// MaxDeclaration bounds a declaration, in bytes of JSON.
	MaxDeclaration = 16 << 20
	// Farewell bounds the wait for a peer to hang up.
	Farewell = 2 * time.Second
)

// Direct is a value of Part in the header of a final reply. With it the first
// worker of a host tells another worker to request the rows from the shard
// holders itself.
const Direct = 1

// CutKinds is the number of kinds of cuts, see client.CutKind.
const CutKinds = 2
