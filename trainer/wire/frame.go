// Package wire carries frames between two tasks over one TCP connection: a
// fixed header and a raw payload.
//
// The sender keeps the payload; Send does not copy it. The receiver looks at the
// header and decides where the payload goes:
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
// machine, or JSON for declarations, messages and errors.
//
// # What it refuses
//
// A frame of another version or generation ends the connection. The package
// never allocates memory for a payload: the reader bounds the length by what was
// declared. The package proves nobody's identity; package cluster does that
// before.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// HeaderSize is the size of an encoded header in bytes.
const HeaderSize = 44

const (
	magic   = 'P' | 'X'<<8
	version = 3
)

// Kind says what a frame is for.
type Kind uint8

// The kinds, roughly in the order in which a connection sees them. The comment
// names who sends the frame: a worker, the chief, which is the first worker, or
// a shard holder, which is a server or a worker that holds shards.
const (
	Heartbeat  Kind = iota + 1 // both: nothing; Next skips it
	Declare                    // worker: JSON, what it is about to train
	Initial                    // chief: a variable before the first step
	Value                      // holder: a variable after a step
	Ready                      // holder: every worker has declared the same; the values were sent
	Step                       // worker: it begins a step
	Push                       // worker: a gradient, or rows of one
	Done                       // holder: the step is complete
	Norm                       // holder: sums of squares of its gradients
	Scale                      // worker that leads a group: the global norm and the factor to scale by
	Pull                       // worker: indices of rows that it needs
	Rows                       // holder: those rows
	Prefetch                   // worker: prefetch request, indices of all rows that it needs for step Step
	EarlyReply                 // holder: early reply, those rows that the step before does not change
	FinalReply                 // holder: final reply, the other rows
	Commit                     // worker: it has its gradients and asks whether they count
	Verdict                    // holder: whether they count
	Fetch                      // worker: it is late or ahead and asks for the values after Step steps
	Bye                        // both: it will send no more
	Error                      // both: JSON, why the sender stops
	Collective                 // worker: part of a collective, see package collective
	Remap                      // worker: JSON, who holds what from a step on
	Move                       // holder, to another: rows that it held
	Moved                      // holder, to a worker: all rows are where they belong; to a holder: all rows of a range were sent
	Room                       // worker: JSON, pieces; holder: whether it has memory for its share
	Cut                        // chief: it asks for a cut; holder: u64 by group of workers, how many steps it has, if it has some in part
	Alone                      // chief: it takes no further step; holder: all other workers have left
	Save                       // chief: save what there is after Step steps or, u64 by group, after as many of each; Offset: number of saves before
	Without                    // first holder: worker Part is lost and counts only in steps before Step; workers pass it on
	Message                    // task: JSON about checkpoints, see checkpoint/store and checkpoint/transfer
	Chunk                      // task: part of a file
	kinds
)

var kindNames = [kinds]string{
	Heartbeat: "heartbeat", Declare: "declare", Initial: "initial", Value: "value", Ready: "ready",
	Step: "step", Push: "push", Done: "done", Norm: "norm", Scale: "scale", Pull: "pull", Rows: "rows",
	Prefetch: "prefetch request", EarlyReply: "early reply", FinalReply: "final reply",
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

// Header says what a payload is, and its length.
type Header struct {
	Kind       Kind
	Generation uint32 // generation of the job, which every restart raises; Conn sets it
	Epoch      uint32 // version of the map from variables to shard holders; Conn sets it after SetEpoch
	Variable   uint32 // index of the variable in the declaration
	Step       uint64 // number of steps before the step that the frame belongs to
	Offset     uint64 // first element within the variable, unless the kind says otherwise
	Length     uint64 // bytes of payload; Conn sets it
	Part       uint32 // vertex of the tree whose sum this is, or number of a request
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

// Float is a type of numbers that a model is made of.
type Float interface{ float32 | float64 }

// Number is a type of numbers that travels raw.
type Number interface{ Float | int64 }

// Bytes returns the memory of s, not a copy.
func Bytes[T Number](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// CheckHost refuses a machine whose numbers in memory are not what travels.
func CheckHost() error {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return errors.New("this machine is big-endian, training data travels little-endian: use another host")
	}
	return nil
}

// Floats returns the memory of b as numbers, not a copy. b must come from
// Bytes or hold whole, aligned numbers.
func Floats[T Number](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(one)))
}
