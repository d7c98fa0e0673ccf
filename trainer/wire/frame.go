// Package wire sends frames between two tasks over one TCP connection. A frame
// is a fixed header and a payload of raw bytes.
//
// Send does not copy the payload. The receiver reads the header first and then
// decides into which memory it reads the payload:
//
//	err := conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Push, Step: 7}, Payload: gradient})
//
//	h, err := peer.Next()
//	// ... check variable, offset and length against the declaration
//	err = peer.Payload(buffer)
//
// # Format
//
// A header has 44 bytes. All numbers are little-endian:
//
//	 0 magic "PX"   2 version   3 kind   4 generation u32
//	 8 epoch u32   12 variable u32      16 step u64
//	24 offset u64, in elements          32 length u64, in bytes
//	40 part u32
//
// The payload follows. It is either numbers as a little-endian machine stores
// them in memory, or JSON for declarations, messages and errors.
//
// # Limits
//
// A frame of another version or generation is an error that ends the
// connection. The package never allocates memory for a payload: the receiver
// must check the length against the declaration. The package does not
// authenticate the peer; package cluster does that before.
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

// Kind is the type of a frame.
type Kind uint8

// The types of frames, roughly in the order in which a connection carries
// them. Each comment begins with the sender: a worker, the chief (worker 0),
// or a holder. A holder is a task that stores shards of variables: a parameter
// server or a worker.
const (
	Heartbeat  Kind = iota + 1 // any task: a sign of life without content, which Next skips
	Declare                    // worker: JSON description of the model and training that it is about to begin
	Initial                    // chief: initial values of a variable
	Value                      // holder: values of a variable after a step
	Ready                      // holder: all workers have sent equal declarations, and the initial values were sent
	Step                       // worker: it begins the training step with the number in Header.Step
	Push                       // worker: the gradient of a variable, or of some rows of it
	Done                       // holder: the training step is complete
	Norm                       // holder: sums of squares of its gradients, for the global gradient norm
	Scale                      // first worker of a group: the global gradient norm, and the factor for gradient clipping
	Pull                       // worker: indices of embedding rows whose values it needs
	Rows                       // holder: the rows that a Pull requested
	Prefetch                   // worker: indices of all embedding rows that it will need in step Step, requested in advance
	EarlyReply                 // holder: reply to Prefetch with the requested rows that the preceding step does not change
	FinalReply                 // holder: reply to Prefetch with all other requested rows, after the preceding step
	Commit                     // worker: it has computed its gradients and asks whether they are used (mode backup)
	Verdict                    // holder: reply to Commit, whether the gradients are used
	Fetch                      // worker: request for the values after Step steps, if the worker is behind or ahead of other workers
	Bye                        // any task: goodbye, it will send nothing more
	Error                      // any task: JSON with the reason why it stops
	Collective                 // worker: an announcement or data of package collective
	Remap                      // worker: JSON with the new assignment of pieces to holders, and the first step for which it is valid
	Move                       // holder to another holder: rows of sparse variables that move to the receiver
	Moved                      // holder to a worker: the holder has received all rows that move to it; holder to another holder: the sender has sent all rows of a range
	Room                       // worker: JSON list of pieces, to ask if the holder has memory for them; holder: reply
	Cut                        // chief: before a checkpoint, stop applying steps and report how many are applied; holder: reply, one u64 per group of workers, which counts partly applied steps too
	Alone                      // chief: it takes no further step; holder: reply, once all other workers have left
	Save                       // chief: save a checkpoint after Step steps, or after the numbers of steps in the payload (one u64 per group of workers); Offset is the number of earlier saves
	Without                    // first holder: worker Part is lost and takes part only in steps before Step; workers forward the frame
	Message                    // any task: JSON about checkpoints, see checkpoint/store and checkpoint/transfer
	Chunk                      // any task: part of a file
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

// Header describes a frame: its type, what its payload belongs to, and the
// payload's length.
type Header struct {
	Kind       Kind
	Generation uint32 // number of restarts of the job so far; Conn sets it
	Epoch      uint32 // version of the assignment of variables to shard holders; Conn sets it after SetEpoch
	Variable   uint32 // index of the variable that the payload belongs to, in the list of the Declare frame
	Step       uint64 // training step that the frame belongs to, counted from 0
	Offset     uint64 // index of the payload's first element in the variable; a few frame types store another number in this field
	Length     uint64 // payload size in bytes; Conn sets it
	Part       uint32 // vertex of the reduction tree whose gradient sum the payload holds; in some frame types the number of a request
}

// Frame is a header and its payload.
type Frame struct {
	Header
	Payload []byte
}

// put encodes h into b, which must have HeaderSize bytes.
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

// parse decodes and checks a header. b must have HeaderSize bytes.
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

// Float is the element types of model variables.
type Float interface{ float32 | float64 }

// Number is the element types that frames carry without conversion.
type Number interface{ Float | int64 }

// Bytes returns the memory of s as bytes, without a copy.
func Bytes[T Number](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// CheckHost returns an error on a big-endian machine, because frames carry
// numbers as they are in memory, in little-endian order.
func CheckHost() error {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return errors.New("this machine is big-endian, training data travels little-endian: use another host")
	}
	return nil
}

// Floats returns the memory of b as numbers, without a copy. b must come from
// Bytes, or begin at an address that is aligned for T and contain a whole
// number of elements.
func Floats[T Number](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(one)))
}
