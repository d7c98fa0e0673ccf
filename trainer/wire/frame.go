// Package wire carries training data between two tasks: frames with a fixed
// header and a raw payload over one TCP connection.
//
// A sender gives headers and payloads that it keeps, a receiver looks at the
// header and says where the payload is to go:
//
//	err := conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Push, Step: 7}, Payload: gradient})
//
//	h, err := peer.Next()
//	// ... is this variable, offset and length what was declared?
//	err = peer.Payload(buffer)
//
// # Format
//
// A header is 44 bytes, all numbers little-endian:
//
//	 0 magic "PX"   2 version   3 kind   4 generation u32
//	 8 epoch u32   12 variable u32      16 step u64
//	24 offset u64, in elements          32 length u64, in bytes
//	40 part u32
//
// The payload follows: numbers as they lie in memory on a little-endian
// machine, JSON for declarations and errors.
//
// # What it refuses
//
// Frames of another version or generation end the connection. The package
// never allocates for a payload: whoever reads bounds the length by what was
// declared. It proves nobody's identity; that happens before, in package
// cluster.
package wire

import (
	"encoding/binary"
	"fmt"
)

// HeaderSize is the size of an encoded header in bytes.
const HeaderSize = 44

const (
	magic   = 'P' | 'X'<<8
	version = 3
)

// Kind says what a frame is for.
type Kind uint8

// The kinds, roughly in the order in which a connection sees them. An owner
// is a server, or a worker that owns variables.
const (
	Heartbeat  Kind = iota + 1 // both ways, swallowed by Next
	Declare                    // worker: JSON, what it is about to train
	Initial                    // chief: a variable before the first step
	Value                      // owner: a variable after a step
	Ready                      // owner: every worker declared the same; values were sent
	Step                       // worker: begins a step
	Push                       // worker: a gradient, or rows of one
	Done                       // owner: the step is complete
	Norm                       // owner: sums of squares of its gradients
	Scale                      // worker that leads a group: the global norm and what to scale by
	Pull                       // worker: indices of rows that it wants
	Rows                       // owner: those rows
	Want                       // worker: indices of all rows that it wants for step Step
	Early                      // owner: those of them that the step before leaves alone
	Final                      // owner: the others; none is to come
	Commit                     // worker: has its gradients, asks whether they count
	Verdict                    // owner: whether they count
	Fetch                      // worker: is late or ahead, wants the values after Step steps
	Bye                        // worker: will send no more
	Error                      // both ways: JSON, why training cannot go on
	Collective                 // workers: part of a collective, see package mesh
	Remap                      // worker: JSON, who is to own what from a step on
	Move                       // owner to owner: rows that it owned
	Moved                      // owner: all rows are where they belong; or, to an owner, all of a range
	Room                       // worker: JSON, pieces; owner: whether it could hold its share
	Cut                        // chief: asks for a cut; owner: u64 by group of workers, how many steps it has, if only in part
	Alone                      // chief: takes no further step; owner: all others have left
	Save                       // chief: keep what there is after Step steps, or, u64 by group, after as many of each; Offset: saves before
	Without                    // first owner: worker Part is lost, it counts in steps before Step only; workers pass it on
	Message                    // depots: JSON, and bytes that belong to it, see package depot
	Chunk                      // depots: part of a file
	kinds
)

var kindNames = [kinds]string{
	Heartbeat: "heartbeat", Declare: "declare", Initial: "initial", Value: "value", Ready: "ready",
	Step: "step", Push: "push", Done: "done", Norm: "norm", Scale: "scale", Pull: "pull", Rows: "rows",
	Want: "want", Early: "early", Final: "final",
	Commit: "commit", Verdict: "verdict", Fetch: "fetch", Bye: "bye", Error: "error", Collective: "collective",
	Remap: "remap", Move: "move", Moved: "moved", Room: "room", Cut: "cut", Alone: "alone", Save: "save", Without: "without",
	Message: "message", Chunk: "chunk",
}

func (k Kind) String() string {
	if k < kinds && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Header tells what a payload is and how long.
type Header struct {
	Kind       Kind
	Generation uint32 // incarnation of the job; filled in by Conn
	Epoch      uint32 // version of the map from variables to owners; filled in by Conn where it was told one
	Variable   uint32 // index in the declaration
	Step       uint64 // updates applied before this one
	Offset     uint64 // first element within the variable
	Length     uint64 // payload bytes; filled in by Conn
	Part       uint32 // vertex of the tree that a sum belongs to, or number of a request
}

// Frame is a header and its payload.
type Frame struct {
	Header
	Payload []byte
}

// put encodes h into b, which holds HeaderSize bytes.
func (h Header) put(b []byte) {
	binary.LittleEndian.PutUint16(b, magic)
	b[2], b[3] = version, byte(h.Kind)
	binary.LittleEndian.PutUint32(b[4:], h.Generation)
	binary.LittleEndian.PutUint32(b[8:], h.Epoch)
	binary.LittleEndian.PutUint32(b[12:], h.Variable)
	binary.LittleEndian.PutUint64(b[16:], h.Step)
	binary.LittleEndian.PutUint64(b[24:], h.Offset)
	binary.LittleEndian.PutUint64(b[32:], h.Length)
	binary.LittleEndian.PutUint32(b[40:], h.Part)
}

// parse decodes HeaderSize bytes.
func parse(b []byte) (Header, error) {
	if got := binary.LittleEndian.Uint16(b); got != magic {
		return Header{}, fmt.Errorf("not a frame: begins with %#04x", got)
	}
	if b[2] != version {
		return Header{}, fmt.Errorf("frame of version %d, this is version %d", b[2], version)
	}
	h := Header{
		Kind:       Kind(b[3]),
		Generation: binary.LittleEndian.Uint32(b[4:]),
		Epoch:      binary.LittleEndian.Uint32(b[8:]),
		Variable:   binary.LittleEndian.Uint32(b[12:]),
		Step:       binary.LittleEndian.Uint64(b[16:]),
		Offset:     binary.LittleEndian.Uint64(b[24:]),
		Length:     binary.LittleEndian.Uint64(b[32:]),
		Part:       binary.LittleEndian.Uint32(b[40:]),
	}
	if h.Kind == 0 || h.Kind >= kinds {
		return Header{}, fmt.Errorf("frame of unknown %s", h.Kind)
	}
	return h, nil
}
